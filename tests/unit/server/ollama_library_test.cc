// Ollama's pull, delete and copy.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.h"
#include "server/api/model_store.h"
#include "server/api/task.h"
#include "unit/server/running_server.h"

namespace quire {
namespace {

using namespace std::chrono_literals;

// "endless" is never there, "gone" fails, "other" can be deleted.
struct ScriptedStore final : ModelStore {
  std::atomic<int> pulling{0}, pulled{0}, removed{0};

  std::string pull(const std::string& name, const std::function<void(const PullProgress&)>& show,
                   const std::function<void()>& check) override {
    struct Counting {
      std::atomic<int>& count;
      explicit Counting(std::atomic<int>& all) : count(all) { ++count; }
      ~Counting() { --count; }
    } counting(pulling);
    show({.status = "pulling manifest"});
    if (name == "gone") throw not_found("there is no {}", name);
    for (int i = 0; name == "endless"; ++i) {
      check();
      show(
          {.status = "pulling abc", .digest = "sha256:abc", .total = 1'000'000, .completed = static_cast<uint64_t>(i)});
      std::this_thread::sleep_for(1ms);
    }
    show({.status = "pulling abc", .digest = "sha256:abc", .total = 7, .completed = 7});
    ++pulled;
    return "ollama:" + name;
  }
  bool remove(const std::string& name) override {
    if (name == "busy") throw invalid("{} is served", name);
    const bool there = name == "other" || name == "ollama:other";
    removed += there;
    return there;
  }
};

struct Library {
  explicit Library(ServerOptions options = {}) : running(with(std::move(options), store)) {}
  static ServerOptions with(ServerOptions options, std::shared_ptr<ModelStore> store) {
    options.model_store = std::move(store);
    return options;
  }
  HttpAnswer call(std::string_view method, std::string_view path, std::string_view body,
                  const std::string& key = "") const {
    return HttpClient(running.port())
        .call(method, path, body, key.empty() ? "" : "Authorization: Bearer " + key + "\r\n");
  }
  HttpAnswer pull(const std::string& name, const std::string& fields = "", const std::string& key = "") const {
    return call("POST", "/api/pull", R"({"model": ")" + name + "\"" + fields + "}", key);
  }

  std::shared_ptr<ScriptedStore> store = std::make_shared<ScriptedStore>();
  RunningServer running;
};

TEST(OllamaLibrary, PullsWithALineForEachStep) {
  Library library;
  const HttpAnswer answer = library.pull("new:1b");
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.headers.at("content-type"), "application/x-ndjson");
  const std::vector<Json> lines = answer.events();
  ASSERT_EQ(lines.size(), 4u) << answer.body;
  EXPECT_EQ(lines[0], Json({{"status", "pulling manifest"}}));
  EXPECT_EQ(lines[1], Json({{"status", "pulling abc"}, {"digest", "sha256:abc"}, {"total", 7}, {"completed", 7}}));
  EXPECT_NE(lines[2]["status"].get<std::string>().find("-m ollama:new:1b"), std::string::npos);
  EXPECT_EQ(lines[3], Json({{"status", "success"}}));
  EXPECT_EQ(library.pull("new:1b", R"(, "stream": false)").body, R"({"status":"success"})");
  EXPECT_EQ(library.store->pulled, 2);
  EXPECT_EQ(library.pull("scripted").body, R"({"status":"success"})") << "it is served";
  EXPECT_EQ(library.store->pulled, 2);
}

TEST(OllamaLibrary, TellsWhyAPullFails) {
  Library library;
  const std::vector<Json> lines = library.pull("gone").events();
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines.back(), Json({{"error", "there is no gone"}}));
  const HttpAnswer whole = library.pull("gone", R"(, "stream": false)");
  EXPECT_EQ(whole.status, 404);
  EXPECT_EQ(whole.json(), Json({{"error", "there is no gone"}}));
  EXPECT_EQ(library.pull("").status, 400);
  EXPECT_EQ(library.pull(std::string(513, 'a')).status, 400);
}

TEST(OllamaLibrary, EndsThePullOfAClientThatLeaves) {
  Library library;
  {
    HttpClient client(library.running.port());
    client.send(HttpClient::request("POST", "/api/pull", R"({"model": "endless"})"));
    ASSERT_TRUE(client.wait_for_bytes(500));
    EXPECT_EQ(library.store->pulling, 1);
  }
  EXPECT_TRUE(eventually([&] { return library.store->pulling == 0; }));
  {
    HttpClient client(library.running.port());  // without a stream, its leaving is noticed all the same
    client.send(HttpClient::request("POST", "/api/pull", R"({"model": "endless", "stream": false})"));
    EXPECT_TRUE(eventually([&] { return library.store->pulling == 1; }));
  }
  EXPECT_TRUE(eventually([&] { return library.store->pulling == 0; }));
}

TEST(OllamaLibrary, BoundsPullsAndAnswersOthersMeanwhile) {
  std::vector<std::unique_ptr<HttpClient>> clients;
  std::shared_ptr<ScriptedStore> store;
  {
    Library library;
    store = library.store;
    for (size_t i = 0; i < TaskRunner::kMostTasks; ++i) {
      clients.push_back(std::make_unique<HttpClient>(library.running.port()));
      clients.back()->send(HttpClient::request("POST", "/api/pull", R"({"model": "endless"})"));
      ASSERT_TRUE(clients.back()->wait_for_bytes(300));
    }
    const HttpAnswer refused = library.pull("endless");
    EXPECT_EQ(refused.status, 503);
    EXPECT_TRUE(refused.headers.contains("retry-after"));
    EXPECT_EQ(HttpClient(library.running.port()).post(kChatPath, chat_body()).status, 200);
    library.running.server->stop();
    EXPECT_TRUE(eventually([&] { return store->pulling == 0; })) << "the server does not wait for downloads";
    const HttpAnswer ended = clients.front()->read_answer();
    EXPECT_EQ(ended.events().back(), Json({{"error", "the server is stopping"}}));
  }
  EXPECT_EQ(store->pulled, 0);
}

TEST(OllamaLibrary, IsTheOperators) {
  ServerOptions options;
  options.api_keys = {"sk-a"};
  options.admin_keys = {"sk-admin"};
  Library library(options);
  for (const auto& [method, path, body] : {std::tuple("POST", "/api/pull", R"({"model": "new"})"),
                                           {"DELETE", "/api/delete", R"({"model": "other"})"},
                                           {"POST", "/api/copy", R"({"source": "scripted", "destination": "b"})"}}) {
    const HttpAnswer refused = library.call(method, path, body, "sk-a");
    EXPECT_EQ(refused.status, 403) << path;
    EXPECT_NE(refused.json()["error"].get<std::string>().find("--admin-key"), std::string::npos);
    EXPECT_EQ(library.call(method, path, body).status, 401) << path;
  }
  EXPECT_EQ(library.store->pulled + library.store->removed, 0);
  EXPECT_EQ(library.pull("scripted", "", "sk-a").status, 200) << "what is served is there, for everybody";
  EXPECT_EQ(library.pull("new", "", "sk-admin").status, 200);
  EXPECT_EQ(library.call("DELETE", "/api/delete", R"({"model": "other"})", "sk-admin").status, 200);
}

TEST(OllamaLibrary, DeletesWhatIsNotServed) {
  Library library;
  const auto remove = [&](const std::string& name) {
    return library.call("DELETE", "/api/delete", R"({"model": ")" + name + "\"}");
  };
  const HttpAnswer done = remove("other");
  EXPECT_EQ(done.status, 200);
  EXPECT_EQ(done.body, "");
  EXPECT_EQ(library.store->removed, 1);
  EXPECT_EQ(remove("x").status, 404);
  EXPECT_EQ(remove("x").json(), Json({{"error", "model \"x\" not found"}}));
  EXPECT_EQ(remove("busy").status, 400);
  EXPECT_EQ(remove("scripted:latest").status, 400);
  const HttpAnswer wrong = library.call("POST", "/api/delete", R"({"model": "other"})");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(wrong.headers.at("allow"), "DELETE");
}

TEST(OllamaLibrary, CopiesAModelToAnAlias) {
  Library library;
  const auto copy = [&](const std::string& source, const std::string& destination) {
    return library.call("POST", "/api/copy",
                        R"({"source": ")" + source + R"(", "destination": ")" + destination + "\"}");
  };
  const auto ask = [&](const std::string& path) {
    return library.call("POST", path, chat_body(R"("model": "mine", "stream": false)"));
  };
  EXPECT_EQ(ask(std::string(kChatPath)).status, 404);
  const HttpAnswer done = copy("scripted", "mine:latest");
  EXPECT_EQ(done.status, 200);
  EXPECT_EQ(done.body, "");
  EXPECT_EQ(ask(std::string(kChatPath)).json()["model"], "mine");
  EXPECT_EQ(ask("/api/chat").json()["model"], "mine");
  HttpClient client(library.running.port());
  const std::string tags = client.get("/api/tags").body, models = client.get("/v1/models").body;
  EXPECT_NE(tags.find("\"mine:latest\""), tags.npos);
  EXPECT_NE(models.find("\"mine\""), models.npos);
  EXPECT_EQ(client.get("/v1/models/mine").status, 200);
  EXPECT_EQ(copy("mine", "again").status, 200) << "of an alias";
  EXPECT_EQ(copy("nothing", "b").status, 404);
  EXPECT_EQ(copy("scripted", "scripted").status, 400);
  EXPECT_EQ(copy("scripted", "").status, 400);
  EXPECT_EQ(library.call("DELETE", "/api/delete", R"({"model": "mine"})").status, 200);
  EXPECT_EQ(ask(std::string(kChatPath)).status, 404);
  EXPECT_EQ(library.store->removed, 0);
  for (int i = 1; i < 256; ++i) ASSERT_EQ(copy("scripted", "a" + std::to_string(i)).status, 200);
  EXPECT_EQ(copy("scripted", "one more").status, 400);
  EXPECT_EQ(copy("scripted", "a1").status, 200) << "it is one of them";
}

// A server of several models, which serves what it downloads, too. Each model answers with its name; "odd" cannot be served.
class ServingLibrary {
 public:
  ServingLibrary() {
    spdlog::set_level(spdlog::level::off);
    ServerOptions options;
    options.port = 0;
    options.model_store = store;
    server_ = std::make_unique<Server>(options);
    std::vector<ServedModel> models;
    models.push_back(model_named("first"));
    server_->attach(std::move(models), 0, [](const std::string& name) {
      if (name == "ollama:odd") throw invalid("the family odd is unknown");
      return model_named(name);
    });
    thread_.emplace(*server_);
  }

  HttpAnswer call(std::string_view method, std::string_view path, const std::string& body) const {
    return HttpClient(server_->port()).call(method, path, body, "");
  }
  HttpAnswer pull(const std::string& name) const { return call("POST", "/api/pull", R"({"model": ")" + name + "\"}"); }
  HttpAnswer remove(const std::string& name) const {
    return call("DELETE", "/api/delete", R"({"model": ")" + name + "\"}");
  }
  HttpAnswer ask(const std::string& model) const {
    return call("POST", "/api/chat", chat_body(R"("stream": false, "model": ")" + model + '"'));
  }
  std::string answer(const std::string& model) const { return ask(model).json()["message"]["content"]; }
  std::vector<std::string> tags() const {
    std::vector<std::string> names;
    const Json list = call("GET", "/api/tags", "").json();
    for (const Json& model : list["models"]) names.push_back(model["name"]);
    return names;
  }
  uint16_t port() const { return server_->port(); }

  std::shared_ptr<ScriptedStore> store = std::make_shared<ScriptedStore>();

 private:
  static ServedModel model_named(const std::string& name) {
    return {.names = {name}, .load = [name] {
              auto model = std::make_unique<ScriptedCompleter>();
              model->answer = name;
              model->endless = name == "ollama:endless answers";
              model->token_time = model->endless ? 1ms : 0ms;
              return model;
            }};
  }

  std::unique_ptr<Server> server_;
  std::optional<ServerThread> thread_;
};

TEST(ServedDownloads, AnswerWithoutARestart) {
  ServingLibrary library;
  EXPECT_EQ(library.ask("new:1b").status, 404);
  const std::vector<Json> lines = library.pull("new:1b").events();
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines.back(), Json({{"status", "success"}}));
  EXPECT_EQ(library.tags(), (std::vector<std::string>{"first:latest", "ollama:new:1b", "new:1b"}));
  EXPECT_EQ(library.answer("new:1b"), "ollama:new:1b");
  EXPECT_EQ(library.answer("first"), "first");
  EXPECT_EQ(library.pull("new:1b").body, R"({"status":"success"})") << "it is served";
  EXPECT_EQ(library.store->pulled, 1);
  EXPECT_EQ(library.pull("ollama:new:1b").status, 200);
  EXPECT_EQ(library.store->pulled, 1);
  EXPECT_EQ(library.pull("another").status, 200);
  EXPECT_EQ(library.answer("another:latest"), "ollama:another");
}

TEST(ServedDownloads, AreRefusedWithTheReason) {
  ServingLibrary library;
  const std::vector<Json> lines = library.pull("odd").events();
  EXPECT_EQ(lines.back(), Json({{"error", "the family odd is unknown"}}));
  EXPECT_EQ(library.tags(), std::vector<std::string>{"first:latest"});
  EXPECT_EQ(library.ask("odd").status, 404);
}

TEST(ServedDownloads, LeaveWhenTheyAreDeleted) {
  ServingLibrary library;
  library.pull("other");
  EXPECT_EQ(library.answer("other"), "ollama:other");
  EXPECT_EQ(library.call("POST", "/api/copy", R"({"source": "other", "destination": "mine"})").status, 200);
  EXPECT_EQ(library.answer("mine"), "ollama:other");
  EXPECT_EQ(library.remove("other").status, 200);
  EXPECT_EQ(library.store->removed, 1);
  for (const char* name : {"other", "ollama:other", "mine"}) EXPECT_EQ(library.ask(name).status, 404) << name;
  EXPECT_EQ(library.tags(), std::vector<std::string>{"first:latest"});
  EXPECT_EQ(library.remove("other").status, 200) << "it is not served now, so the store is asked";
  library.pull("other");
  EXPECT_EQ(library.answer("other"), "ollama:other") << "again";
  EXPECT_EQ(library.remove("first").status, 400);
  EXPECT_EQ(library.answer("first"), "first");
}

TEST(ServedDownloads, AnswerToTheEndBeforeTheyLeave) {
  ServingLibrary library;
  library.pull("endless answers");
  auto client = std::make_unique<HttpClient>(library.port());
  client->send(HttpClient::request("POST", "/api/chat", chat_body(R"("model": "endless answers")")));
  ASSERT_TRUE(client->wait_for_bytes(2000));
  std::atomic<bool> deleted{false};
  std::thread deleting([&] {
    EXPECT_EQ(library.remove("endless answers").status, 404) << "the scripted store has no such files";
    deleted = true;
  });
  EXPECT_TRUE(eventually([&] { return library.tags().size() == 1; }));
  EXPECT_TRUE(client->wait_for_bytes(20'000)) << "it goes on";
  EXPECT_FALSE(deleted);
  client.reset();
  deleting.join();
}

}  // namespace
}  // namespace quire
