// A server with two models: each request reaches the one that it names.
#include "server/api/models.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "error_of.h"
#include "unit/server/http_client.h"
#include "unit/server/running_server.h"

namespace quire {
namespace {

class TwoModels : public ::testing::Test {
 protected:
  TwoModels() {
    small_.answer = "small";
    large_.answer = "large";
    large_.change_info().vocab_size = 128;
    large_.change_info().max_model_len = 500;
    spdlog::set_level(spdlog::level::off);
    ServerOptions options;
    options.port = 0;
    std::vector<ServedModel> models;
    models.push_back({.names = {"small", "alias", "claude-*"}, .completer = &small_});
    models.push_back({.names = {"large", "claude-large"}, .completer = &large_});
    server_ = std::make_unique<Server>(std::move(models), options);
    thread_.emplace(*server_);
  }

  HttpClient client() const { return HttpClient(server_->port()); }
  // The text of the answer to a chat; `model` is a field or empty.
  std::string answer(const std::string& model) const {
    const std::string field = model.empty() ? "" : "\"model\": \"" + model + '"';
    return client().post("/v1/chat/completions", chat_body(field)).json()["choices"][0]["message"]["content"];
  }

  ScriptedCompleter small_, large_;
  std::unique_ptr<Server> server_;

 private:
  std::optional<ServerThread> thread_;
};

TEST_F(TwoModels, AreWatchedOneByOne) {
  large_.on_snapshot = [number = std::make_shared<std::atomic<uint64_t>>(0)] {
    EngineSnapshot s;
    s.number = ++*number;
    return s;
  };
  const Json listed = client().get("/dashboard/models").json();
  EXPECT_EQ(listed["models"],
            Json::parse(R"([{"name": "small", "status": "loaded"}, {"name": "large", "status": "loaded"}])"));
  HttpClient watcher(server_->port());
  watcher.send(HttpClient::request("GET", "/dashboard/events?model=claude-large"));
  ASSERT_TRUE(eventually([&] { return server_->models().feed(1).readers() == 1; }));
  EXPECT_EQ(server_->models().feed().readers(), 0u) << "that of the first model";
  ASSERT_TRUE(watcher.wait_for_bytes(1200));
  server_->stop();
  const auto text = watcher.read_to_end();
  ASSERT_TRUE(text);
  EXPECT_NE(text->find("\"max_model_len\":500"), text->npos) << *text;
}

TEST_F(TwoModels, AreWatchedUnderTheirNamesOnly) {
  const HttpAnswer refused = client().get("/dashboard/events?model=none");
  EXPECT_EQ(refused.status, 404);
  EXPECT_EQ(refused.json()["error"]["code"], "model_not_found");
}

TEST_F(TwoModels, AnswerUnderTheirNames) {
  EXPECT_EQ(answer("small"), "small");
  EXPECT_EQ(answer("alias"), "small");
  EXPECT_EQ(answer("large"), "large");
  EXPECT_EQ(answer(""), "small") << "the first is the default";
  EXPECT_EQ(answer("claude-3"), "small");
  EXPECT_EQ(answer("claude-large"), "large") << "a name wins over a pattern";
  EXPECT_EQ(
      client().post("/api/chat", chat_body(R"("model": "large:latest", "stream": false)")).json()["message"]["content"],
      "large");
  const auto refused = client().post("/v1/chat/completions", chat_body(R"("model": "medium")"));
  EXPECT_EQ(refused.status, 404);
  EXPECT_EQ(refused.error_param(), "model");
}

TEST_F(TwoModels, HaveTheirOwnLimits) {
  const std::string body = R"({"prompt": [200], "model": ")";
  EXPECT_EQ(client().post("/v1/completions", body + "small\"}").status, 200);
  EXPECT_EQ(client().post("/v1/completions", body + "large\"}").error_param(), "prompt[0]");
  EXPECT_EQ(client().post("/tokenize", R"({"prompt": "a", "model": "large"})").json()["max_model_len"], 500);
}

TEST_F(TwoModels, AreListed) {
  std::vector<std::string> ids, tags;
  const Json list = client().get("/v1/models").json(), tagged = client().get("/api/tags").json();
  for (const Json& model : list["data"]) ids.push_back(model["id"]);
  EXPECT_EQ(ids, (std::vector<std::string>{"small", "alias", "large", "claude-large"}));
  for (const Json& model : tagged["models"]) tags.push_back(model["name"]);
  EXPECT_EQ(tags, (std::vector<std::string>{"small:latest", "alias:latest", "large:latest", "claude-large:latest"}));
  EXPECT_EQ(client().get("/v1/models/large").json()["max_model_len"], 500);
  EXPECT_EQ(client().get("/v1/models/claude-7").json()["max_model_len"], 100'000);
  EXPECT_EQ(client().get("/v1/models/medium").status, 404);
}

TEST_F(TwoModels, ShareAdmission) {
  EXPECT_EQ(server_->models().all().size(), 2u);
  answer("small");
  answer("large");
  EXPECT_TRUE(eventually([&] { return server_->models().admission()->inside() == 0; }));
}

TEST_F(TwoModels, StayLoaded) {
  EXPECT_EQ(client().post("/models/load", R"({"model": "large"})").status, 200);
  const HttpAnswer refused = client().post("/models/unload", R"({"model": "large"})");
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(refused.error_param(), "model");
  EXPECT_EQ(client().post("/api/generate", R"({"model": "large", "keep_alive": 0})").status, 200);
  EXPECT_EQ(answer("large"), "large");
}

TEST_F(TwoModels, HaveTheirOwnMetrics) {
  answer("small");
  answer("large");
  answer("large");
  const std::string text = client().get("/metrics").body;
  for (const char* line :
       {"generation_tokens_total{model_name=\"small\"} 5\n", "generation_tokens_total{model_name=\"large\"} 10\n",
        "model_loaded{model_name=\"large\"} 1\n"})
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
}

// Models that are loaded when they are asked for. What loading does is the test's to say.
class ModelsOnRequest : public ::testing::Test {
 protected:
  ModelsOnRequest() {
    spdlog::set_level(spdlog::level::off);
    ServerOptions options;
    options.port = 0;
    options.load_timeout = std::chrono::milliseconds(load_timeout_);
    std::vector<ServedModel> models;
    for (const std::string name : {"small", "large"}) {
      models.push_back({.names = {name}, .max_model_len = 77});
      models.back().load = [this, name] { return load(name); };
    }
    server_ = std::make_unique<Server>(std::move(models), options);
    thread_.emplace(*server_);
  }
  ~ModelsOnRequest() override { stop(); }

  void stop() {
    thread_.reset();
    server_.reset();
  }

  // One fits at a time.
  std::unique_ptr<Completer> load(const std::string& name) {
    loads_.push_back(name);
    if (on_load_) on_load_();
    if (in_memory_ > 0) throw no_resource("no room for {}", name);
    ++in_memory_;
    struct Counted final : Completer {
      explicit Counted(std::atomic<int>& all) : in_memory(all) {}
      ~Counted() override { --in_memory; }
      RequestId submit(Request request, Engine::Callback callback) override {
        return model.submit(std::move(request), std::move(callback));
      }
      void cancel(RequestId id) override { model.cancel(id); }
      const ModelInfo& info() const override { return model.info(); }
      EngineStats stats() const override { return model.stats(); }
      const ServedText& text() const override { return model.text(); }
      std::atomic<int>& in_memory;
      ScriptedCompleter model;
    };
    auto made = std::make_unique<Counted>(in_memory_);
    made->model.answer = name;
    made->model.endless = endless_;
    if (endless_) made->model.token_time = std::chrono::milliseconds(1);
    return made;
  }

  HttpClient client() const { return HttpClient(server_->port()); }
  HttpAnswer chat(const std::string& model, const std::string& fields = "") const {
    return client().post("/v1/chat/completions", chat_body("\"model\": \"" + model + '"' + fields));
  }
  std::string answer(const std::string& model) const { return chat(model).json()["choices"][0]["message"]["content"]; }
  std::string state(const std::string& model) const {
    return client().get("/v1/models/" + model).json()["status"]["value"];
  }

  int load_timeout_ = 60'000;
  bool endless_ = false;
  std::vector<std::string> loads_;  // by the pool's thread
  std::function<void()> on_load_;
  std::atomic<int> in_memory_{0};
  std::unique_ptr<Server> server_;

 private:
  std::optional<ServerThread> thread_;
};

TEST_F(ModelsOnRequest, AreLoadedByTheirFirstRequest) {
  EXPECT_EQ(state("small"), "unloaded");
  EXPECT_EQ(client().get("/v1/models/small").json()["max_model_len"], 77) << "as planned";
  EXPECT_EQ(client().get("/props").status, 503);
  EXPECT_EQ(client().get("/api/ps").json()["models"].size(), 0u);
  EXPECT_EQ(client().get("/api/tags").json()["models"].size(), 2u);
  EXPECT_EQ(client().post("/api/show", R"({"model": "large"})").status, 200) << "without loading it";
  EXPECT_EQ(answer("small"), "small");
  EXPECT_EQ(state("small"), "loaded");
  EXPECT_EQ(client().get("/v1/models/small").json()["max_model_len"], 100'000);
  EXPECT_EQ(client().get("/api/ps").json()["models"].size(), 1u);
  EXPECT_EQ(answer("small"), "small");
  EXPECT_EQ(loads_, std::vector<std::string>{"small"});
}

TEST_F(ModelsOnRequest, MakeRoomForEachOther) {
  EXPECT_EQ(answer("small"), "small");
  EXPECT_EQ(answer("large"), "large");
  EXPECT_EQ(state("small"), "unloaded");
  EXPECT_EQ(answer("small"), "small");
  const std::string text = client().get("/metrics").body;
  for (const char* line : {"generation_tokens_total{model_name=\"small\"} 10\n",
                           "model_loaded{model_name=\"small\"} 1\n", "model_loaded{model_name=\"large\"} 0\n"})
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
}

TEST_F(ModelsOnRequest, WaitForTheAnswersOfOthers) {
  endless_ = true;
  std::thread first([&] { EXPECT_EQ(chat("small", R"(, "max_tokens": 100)").status, 200); });
  ASSERT_TRUE(eventually([&] { return state("small") == "loaded"; }));
  std::vector<std::thread> others;
  for (const char* model : {"large", "small", "large"})
    others.emplace_back([&, model] { EXPECT_EQ(chat(model, R"(, "max_tokens": 10)").status, 200); });
  first.join();
  for (std::thread& other : others) other.join();
  EXPECT_LE(in_memory_, 1);
}

TEST_F(ModelsOnRequest, AreLoadedAndUnloadedByHand) {
  EXPECT_EQ(client().post("/models/load", R"({"model": "large"})").body, R"({"success":true})");
  EXPECT_EQ(state("large"), "loaded");
  EXPECT_EQ(client().post("/models/unload", R"({"model": "large"})").status, 200);
  EXPECT_TRUE(eventually([&] { return state("large") == "unloaded"; }));
  EXPECT_EQ(client().post("/models/unload", R"({"model": "large"})").status, 200) << "it is not loaded";
  EXPECT_EQ(client().post("/models/unload", R"({"model": "medium"})").status, 404);
  EXPECT_EQ(client().post("/models/unload", "{}").status, 400);
}

TEST_F(ModelsOnRequest, LeaveWhenARequestSaysSo) {
  const auto ask = [&](const char* keep_alive) {
    return client().post("/api/chat",
                         chat_body(std::string(R"("model": "small", "stream": false, "keep_alive": )") + keep_alive));
  };
  EXPECT_EQ(ask("0").json()["message"]["content"], "small");
  EXPECT_TRUE(eventually([&] { return state("small") == "unloaded"; }));
  EXPECT_EQ(ask("\"1h\"").status, 200);
  EXPECT_EQ(ask("-1").status, 200);
  EXPECT_EQ(state("small"), "loaded");
  EXPECT_EQ(ask("\"soon\"").status, 400);
  EXPECT_EQ(client().post("/api/generate", R"({"model": "small", "keep_alive": 0})").json()["done_reason"], "unload");
  EXPECT_TRUE(eventually([&] { return state("small") == "unloaded"; }));
}

TEST_F(ModelsOnRequest, FailWithAReason) {
  on_load_ = [] { throw invalid("its file is broken"); };
  const HttpAnswer refused = chat("small");
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.json()["error"]["message"], "the model \"small\" cannot be loaded: its file is broken");
  EXPECT_EQ(state("small"), "unloaded");
  on_load_ = nullptr;
  EXPECT_EQ(answer("small"), "small") << "the next request tries again";
}

TEST_F(ModelsOnRequest, AreNotWaitedForByAServerThatStops) {
  // Loading outlives the test's body.
  const auto loading = std::make_shared<std::atomic<bool>>(false), go_on = std::make_shared<std::atomic<bool>>(false);
  on_load_ = [loading, go_on] {
    *loading = true;
    while (!*go_on) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  std::thread asking([&] { EXPECT_EQ(chat("small").status, 503); });
  ASSERT_TRUE(eventually([&] { return loading->load(); }));
  EXPECT_EQ(state("small"), "loading");
  server_->stop();
  server_->stop();
  asking.join();
  *go_on = true;
}

TEST(Models, NeedNamesOfTheirOwn) {
  ScriptedCompleter one, two;
  EXPECT_EQ(error_of([&] {
              Models({{.names = {"m"}, .completer = &one}, {.names = {"n", "m"}, .completer = &two}}, {});
            }),
            "two models have the name \"m\"; give each its own (--served-model-name)");
}

TEST(Models, HaveNoAdapterOfOneNameTwice) {
  ScriptedCompleter one, two;
  one.takes_adapters = two.takes_adapters = true;
  ServiceOptions options;
  options.loads_adapters = true;
  const Models models({{.names = {"m"}, .completer = &one}, {.names = {"n"}, .completer = &two}}, options);
  models.try_acquire(0)->add_adapter({"a", "path"});
  for (const char* taken : {"a", "m"}) EXPECT_THROW(models.try_acquire(1)->add_adapter({taken, "path"}), ApiError);
  EXPECT_THROW(models.try_acquire(0)->add_adapter({"n", "path"}), ApiError);
  models.try_acquire(1)->add_adapter({"b", "path"});
  EXPECT_EQ(models.find("a"), 0u);
  EXPECT_EQ(models.find("b"), 1u);
}

}  // namespace
}  // namespace quire
