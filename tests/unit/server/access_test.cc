// API keys, CORS, and what a server answers before it has a model.
#include <gtest/gtest.h>

#include <csignal>

#include "unit/server/running_server.h"
#include "unit/server/temporary_files.h"

namespace quire {
namespace {

using namespace std::chrono_literals;

const std::string kKey = "Authorization: Bearer sk-a\r\n";

ServerOptions with_keys(const TemporaryFolder& folder) {
  ServerOptions options;
  options.api_key_file = folder.write("keys", "team-a:sk-a\n");
  return options;
}

TEST(Access, NeedsAKey) {
  const TemporaryFolder folder;
  RunningServer running(with_keys(folder));
  std::string tenant;
  running.model.on_submit = [&](const Request& request) { tenant = request.tenant; };
  HttpClient client(running.port());
  EXPECT_EQ(client.call("POST", kChatPath, chat_body(), kKey).status, 200);
  EXPECT_EQ(tenant, "team-a");
  EXPECT_EQ(client.call("POST", kChatPath, chat_body(), "x-api-key: sk-a\r\n").status, 200);
  EXPECT_EQ(client.call("GET", "/v1/models", {}, kKey).status, 200);
  for (const char* open : {"/", "/health", "/ready", "/metrics"}) EXPECT_EQ(client.get(open).status, 200);
  for (const char* header : {"", "Authorization: Bearer sk-b\r\n", "Authorization: Basic sk-a\r\n",
                             "Authorization: sk-a\r\n", "x-api-key: sk-\r\n"}) {
    for (const char* path : {"/v1/models", "/v1/nothing", "/tokenize", "/health/../v1/models", "//health",
                             "http://health/tokenize", "/%68ealth/x"}) {
      const HttpAnswer answer = client.call("GET", path, {}, header);
      EXPECT_EQ(answer.status, 401) << path << header;
      EXPECT_EQ(answer.headers.at("www-authenticate"), "Bearer");
      EXPECT_EQ(answer.json()["error"]["code"], "invalid_api_key");
      EXPECT_FALSE(answer.headers.at("x-request-id").empty());
    }
  }
}

TEST(Access, LetsOperatorsManageModels) {
  const TemporaryFolder folder;
  ServerOptions options = with_keys(folder);
  options.api_keys = {"sk-c"};
  options.admin_keys = {"sk-admin", "sk-c"};
  RunningServer keyed(options);
  const auto load = [](uint16_t port, const std::string& key) {
    return HttpClient(port).call("POST", "/models/load", R"({"model": "scripted"})",
                                 key.empty() ? "" : "Authorization: Bearer " + key + "\r\n");
  };
  EXPECT_EQ(load(keyed.port(), "sk-admin").status, 200);
  EXPECT_EQ(load(keyed.port(), "sk-c").status, 200) << "it is given as both";
  EXPECT_EQ(load(keyed.port(), "").status, 401);
  const HttpAnswer refused = load(keyed.port(), "sk-a");
  EXPECT_EQ(refused.status, 403);
  EXPECT_EQ(refused.json()["error"]["code"], "not_an_operator");
  EXPECT_EQ(HttpClient(keyed.port()).call("POST", kChatPath, chat_body(), "Authorization: Bearer sk-admin\r\n").status,
            200);
  RunningServer local;
  EXPECT_EQ(load(local.port(), "").status, 200) << "a program of this machine";
  ServerOptions open;
  open.hosts = {"0.0.0.0"};
  RunningServer everywhere(open);
  EXPECT_EQ(load(everywhere.port(), "").status, 403);
}

// What the operator says of a key orders tenants; what a request asks for, its tenant's requests.
TEST(Access, GivesRequestsTheOperatorsPriority) {
  const TemporaryFolder folder;
  ServerOptions options;
  options.api_key_file = folder.write("keys", "chat:sk-a:-5\nbatch:sk-b\n");
  RunningServer running(options);
  HttpClient client(running.port());
  for (const auto& [key, priority] : {std::pair{"sk-a", -5}, {"sk-b", 0}}) {
    EXPECT_EQ(client
                  .call("POST", kChatPath, chat_body(R"("priority": -2147483647)"),
                        "Authorization: Bearer " + std::string(key) + "\r\n")
                  .status,
              200);
    const Request request = running.model.last_request();
    EXPECT_EQ(request.tenant_priority, priority);
    EXPECT_EQ(request.priority, -2147483647);
  }
}

TEST(Access, RefusesAWrongKeyBeforeTheBodyArrives) {
  const TemporaryFolder folder;
  RunningServer running(with_keys(folder));
  HttpClient client(running.port());
  client.send("POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Length: 1000000\r\nExpect: 100-continue\r\n\r\n");
  const HttpAnswer answer = client.read_answer();
  EXPECT_EQ(answer.status, 401);
  EXPECT_EQ(answer.headers.at("connection"), "close");
  HttpClient other(running.port());  // a client that has sent its body already reads the answer too
  EXPECT_EQ(other.post(kChatPath, std::string(3'000'000, ' ')).status, 401);
  EXPECT_EQ(running.model.submitted(), 0u);
  // Anthropic's clients get their own error shape.
  EXPECT_EQ(HttpClient(running.port()).call("POST", "/v1/messages").json()["type"], "error");
}

TEST(Access, OpenApiDocumentNamesThePathsThatNeedAKey) {
  RunningServer open;
  const Json without = HttpClient(open.port()).get("/openapi.json").json();
  EXPECT_FALSE(without.contains("security") || without["components"].contains("securitySchemes"));
  const TemporaryFolder folder;
  RunningServer running(with_keys(folder));
  const Json document = HttpClient(running.port()).call("GET", "/openapi.json", {}, kKey).json();
  EXPECT_EQ(document["components"]["securitySchemes"]["bearer"]["scheme"], "bearer");
  EXPECT_EQ(document["security"].size(), 2u);
  for (const auto& [path, operations] : document["paths"].items()) {
    for (const auto& [method, operation] : operations.items()) {
      const bool asks = !operation.contains("security");
      EXPECT_EQ(operation["responses"].contains("401"), asks) << path;
      EXPECT_FALSE(without["paths"][path][method]["responses"].contains("401")) << path;
      HttpClient client(running.port());  // a refused body ends its connection
      const int status = method == "get" ? client.get(path).status : client.post(path, "{}").status;
      EXPECT_EQ(status == 401, asks) << method << " " << path;
    }
  }
}

TEST(Access, ReloadsTheKeysOnSighup) {
  const TemporaryFolder folder;
  RunningServer running(with_keys(folder), [](Server& server) { server.obey_signals(); });
  const auto status = [&](const std::string& key) {
    return HttpClient(running.port()).call("GET", "/v1/models", {}, "Authorization: Bearer " + key + "\r\n").status;
  };
  EXPECT_EQ(status("sk-a"), 200);
  folder.write("keys", "team-b:sk-b\n");
  std::raise(SIGHUP);
  EXPECT_TRUE(eventually([&] { return status("sk-b") == 200; }));
  EXPECT_EQ(status("sk-a"), 401);
  folder.write("keys", "broken file\n");
  std::raise(SIGHUP);
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(status("sk-b"), 200);
}

TEST(Access, AnswersPagesOfAllowedOrigins) {
  const TemporaryFolder folder;
  ServerOptions options = with_keys(folder);
  options.cors.origins = {"https://chat.example.org"};
  RunningServer running(options);
  HttpClient client(running.port());
  const std::string page = "Origin: https://chat.example.org\r\n";
  // A browser sends no key with its preflight.
  const HttpAnswer asked =
      client.call("OPTIONS", kChatPath, {},
                  page + "Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: authorization\r\n");
  EXPECT_EQ(asked.status, 200);
  EXPECT_EQ(asked.headers.at("access-control-allow-origin"), "https://chat.example.org");
  EXPECT_EQ(asked.headers.at("access-control-allow-headers"), "authorization");
  EXPECT_EQ(
      client
          .call("OPTIONS", kChatPath, {}, "Origin: https://evil.example.org\r\nAccess-Control-Request-Method: POST\r\n")
          .status,
      403);
  EXPECT_EQ(client.call("OPTIONS", kChatPath, {}, kKey).status, 405);
  for (const char* fields : {"", R"("stream": true)", R"("temperature": -1)"}) {
    const HttpAnswer answer = client.call("POST", kChatPath, chat_body(fields), page + kKey);
    EXPECT_EQ(answer.headers.at("access-control-allow-origin"), "https://chat.example.org");
    EXPECT_EQ(answer.headers.at("vary"), "Origin");
  }
  EXPECT_FALSE(client.call("GET", "/health").headers.contains("access-control-allow-origin"));
}

TEST(Access, ListensWhileTheModelLoads) {
  spdlog::set_level(spdlog::level::off);
  ServerOptions options;
  options.port = 0;
  ScriptedCompleter model;
  Server server(options);
  std::thread thread([&] { server.run(); });
  HttpClient client(server.port());
  EXPECT_EQ(client.get("/health").status, 200);
  for (const char* path : {"/ready", "/v1/models", "/metrics"}) {
    const HttpAnswer answer = client.get(path);
    EXPECT_EQ(answer.status, 503) << path;
    EXPECT_EQ(answer.json()["error"]["code"], "loading");
    EXPECT_TRUE(answer.headers.contains("retry-after"));
  }
  EXPECT_EQ(client.post(kChatPath, chat_body()).status, 503);
  EXPECT_EQ(client.post("/v1/messages", "{}").json()["error"]["type"], "overloaded_error");
  server.attach(model);
  EXPECT_EQ(client.post(kChatPath, chat_body()).status, 200);
  EXPECT_EQ(client.get("/health").status, 200);
  EXPECT_EQ(client.get("/ready").status, 200);
  server.stop();
  thread.join();
}

TEST(Access, StopsImmediatelyWhileLoading) {
  spdlog::set_level(spdlog::level::off);
  ServerOptions options;
  options.port = 0;
  Server server(options);
  std::thread thread([&] { server.run(); });
  HttpClient client(server.port());
  EXPECT_EQ(client.get("/health").status, 200);
  server.stop();
  EXPECT_NE(client.read_to_end(5s), std::nullopt);
  thread.join();
}

}  // namespace
}  // namespace quire
