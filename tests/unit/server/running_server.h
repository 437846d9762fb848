// A server with the scripted model; it runs until the test ends.
#pragma once

#include <spdlog/spdlog.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "server/http/server.h"
#include "unit/server/http_client.h"
#include "unit/server/scripted_completer.h"

namespace quire {

// Of a server whose model thinks and calls as Qwen3 does.
inline ServerOptions qwen3_options() {
  ServerOptions options;
  options.tool_call_parser = "hermes";
  options.reasoning_parser = "qwen3";
  return options;
}

// Runs the server, and stops it without drain and grace period.
class ServerThread {
 public:
  explicit ServerThread(Server& server) : server_(server), thread_([&server] { server.run(); }) {}
  ~ServerThread() {
    if (!thread_.joinable()) return;
    server_.stop();
    server_.stop();
    thread_.join();
  }
  void join() { thread_.join(); }

 private:
  Server& server_;
  std::thread thread_;
};

class RunningServer {
 public:
  explicit RunningServer(ServerOptions options = {}, const std::function<void(Server&)>& before_run = {},
                         spdlog::level::level_enum log_level = spdlog::level::off, std::string chat_template = {}) {
    model.chat_template = std::move(chat_template);
    spdlog::set_level(log_level);
    options.port = 0;
    server = std::make_unique<Server>(options);
    if (before_run) before_run(*server);
    server->attach(model);
    thread_.emplace(*server);
  }
  void join() { thread_->join(); }
  uint16_t port() const { return server->port(); }

  ScriptedCompleter model;  // set it up before the first request
  std::unique_ptr<Server> server;

 private:
  std::optional<ServerThread> thread_;
};

inline std::string chat_body(const std::string& fields = "") {
  return R"({"messages": [{"role": "user", "content": "Hi"}])" + (fields.empty() ? "" : ", " + fields) + "}";
}
inline constexpr std::string_view kChatPath = "/v1/chat/completions", kCompletionPath = "/v1/completions";

// Whether the condition becomes true within a minute, so that tests do not depend on the speed of the machine.
inline bool eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 12000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

}  // namespace quire
