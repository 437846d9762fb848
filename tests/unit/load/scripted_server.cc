#include "unit/load/scripted_server.h"

#include <fmt/format.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

namespace quire {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;
using Clock = std::chrono::steady_clock;

constexpr auto kTuple = asio::as_tuple(asio::use_awaitable);

std::string http_answer(int status, const std::string& body) {
  return fmt::format("HTTP/1.1 {} -\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{}", status,
                     body.size(), body);
}

std::string chunk(const std::string& event) {
  const std::string text = "data: " + event + "\n\n";
  return fmt::format("{:x}\r\n{}\r\n", text.size(), text);
}

std::string token_chunk(bool last) {
  return chunk(nlohmann::json{
      {"choices",
       {{{"index", 0}, {"text", "x"}, {"finish_reason", last ? nlohmann::json("length") : nlohmann::json()}}}}}
                   .dump());
}

}  // namespace

struct ScriptedServer::State {
  State(std::function<ScriptedAnswer(int)> script_, bool serial_)
      : script(std::move(script_)), serial(serial_), acceptor(io, tcp::endpoint(asio::ip::address_v4::loopback(), 0)) {}

  asio::awaitable<void> accept() {
    for (;;) {
      auto [error, socket] = co_await acceptor.async_accept(kTuple);
      if (error) co_return;
      socket.set_option(tcp::no_delay(true));
      asio::co_spawn(io, converse(std::move(socket)), asio::detached);
    }
  }

  asio::awaitable<void> converse(tcp::socket socket) {
    boost::beast::flat_buffer buffer;
    for (;;) {
      http::request<http::string_body> request;
      auto [error, bytes] = co_await http::async_read(socket, buffer, request, kTuple);
      if (error) co_return;
      if (request.method() == http::verb::get) {
        if (!co_await write(socket, http_answer(200, R"({"data": [{"id": "scripted"}]})"))) co_return;
        continue;
      }
      const auto body = nlohmann::json::parse(request.body(), nullptr, false);
      if (!body.is_object() || !body.contains("prompt") || !body.contains("max_tokens")) {
        co_await write(socket, http_answer(400, R"({"error": {"message": "prompt and max_tokens are required"}})"));
        continue;
      }
      if (!co_await answer(socket, body.at("prompt").size(), body.at("max_tokens").get<int>())) co_return;
    }
  }

  // False if the connection must close.
  asio::awaitable<bool> answer(tcp::socket& socket, size_t prompt_tokens, int max_tokens) {
    using Ending = ScriptedAnswer::Ending;
    const size_t own = begin_answer();
    const ScriptedAnswer script_now = script(static_cast<int>(own));
    if (script_now.ending == Ending::kRefused)
      co_return co_await write(socket, http_answer(503, R"({"error": {"message": "scripted refusal"}})"));

    asio::steady_timer timer(io);
    auto next = Clock::now();
    if (serial) next = std::max(next, busy_until);
    busy_until = next + script_now.first + (max_tokens - 1) * script_now.gap;
    if (!co_await write(socket,
                        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                        "Transfer-Encoding: chunked\r\n\r\n"))
      co_return false;
    const int tokens = script_now.ending == Ending::kShort ? max_tokens - 1 : max_tokens;
    for (int i = 0; i < tokens; ++i) {
      next += i == 0 ? script_now.first : script_now.gap;
      timer.expires_at(next);
      co_await timer.async_wait(asio::use_awaitable);
      if (i == tokens / 2 && script_now.ending == Ending::kCut) co_return false;
      if (i == tokens / 2 && script_now.ending == Ending::kError) {
        co_await write(socket, chunk(R"({"error": {"message": "scripted error"}})") + "0\r\n\r\n");
        co_return true;
      }
      record_token(own);
      if (!co_await write(socket, token_chunk(i + 1 == tokens))) co_return false;
    }
    nlohmann::json usage = {{"prompt_tokens", prompt_tokens}, {"completion_tokens", tokens}};
    if (script_now.cached_tokens >= 0) usage["prompt_tokens_details"] = {{"cached_tokens", script_now.cached_tokens}};
    const nlohmann::json last = {{"choices", nlohmann::json::array()}, {"usage", usage}};
    co_return co_await write(socket, chunk(last.dump()) + chunk("[DONE]") + "0\r\n\r\n") &&
        script_now.ending != Ending::kCloseQuietly;
  }

  size_t begin_answer() {
    const std::lock_guard lock(mutex);
    times.push_back({Clock::now(), {}});
    return times.size() - 1;
  }

  void record_token(size_t request) {
    const std::lock_guard lock(mutex);
    times[request].tokens.push_back(Clock::now());
  }

  static asio::awaitable<bool> write(tcp::socket& socket, std::string text) {
    auto [error, bytes] = co_await asio::async_write(socket, asio::buffer(text), kTuple);
    co_return !error;
  }

  const std::function<ScriptedAnswer(int)> script;
  const bool serial;
  asio::io_context io{1};
  tcp::acceptor acceptor;
  Clock::time_point busy_until;
  std::mutex mutex;
  std::vector<ScriptedTimes> times;  // guarded by mutex
  std::jthread thread;
};

ScriptedServer::ScriptedServer(std::function<ScriptedAnswer(int)> script, bool serial)
    : state_(std::make_unique<State>(std::move(script), serial)) {
  asio::co_spawn(state_->io, state_->accept(), asio::detached);
  state_->thread = std::jthread([state = state_.get()] { state->io.run(); });
}

ScriptedServer::~ScriptedServer() { state_->io.stop(); }

std::string ScriptedServer::url() const {
  return fmt::format("http://127.0.0.1:{}", state_->acceptor.local_endpoint().port());
}

std::vector<ScriptedTimes> ScriptedServer::times() const {
  const std::lock_guard lock(state_->mutex);
  return state_->times;
}

}  // namespace quire
