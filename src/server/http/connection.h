// One client's connection: HTTP/1.1 requests in, answers and streams out.
#pragma once

#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <memory>
#include <optional>
#include <string>

#include "server/api/exchange.h"
#include "server/api/service.h"
#include "server/http/api_keys.h"
#include "server/http/byte_stream.h"
#include "server/http/server.h"

namespace quire {

// What the connections of a server share.
struct ConnectionContext {
  const ServerOptions& options;
  const Tls* tls;  // nullptr: in the clear
  const ApiKeys& keys;
  spdlog::logger& log;  // of requests
  ByteBudget &bodies, &replies;
  boost::asio::thread_pool& workers;       // parse and tokenize, so that other clients' streams go on meanwhile
  std::atomic<Service*> service{nullptr};  // nullptr: the model is still loading
  std::atomic<bool> stopping{false};       // what is being answered goes on, nothing else begins
  std::atomic<bool> aborting{false};       // nor that
};

// Lives on its socket's executor, a strand; drain and abort may be called from any thread.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(boost::asio::ip::tcp::socket socket, ConnectionContext& context);
  ~Connection();

  boost::asio::awaitable<void> run();  // until the connection is closed

  void drain();  // the server stops: closed if no request is under way
  void abort();  // the request under way is cancelled

 private:
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;
  using HttpRequest = Parser::value_type;
  using ErrorCode = boost::beast::error_code;
  using Clock = std::chrono::steady_clock;
  enum class Wait : uint8_t { kReady, kTimeout, kGone };

  boost::asio::awaitable<bool> handshake();
  boost::asio::awaitable<bool> wait_for_request();
  // Each gives whether all of it has come; what else has happened has been answered.
  boost::asio::awaitable<bool> read_header(Parser& parser);
  boost::asio::awaitable<bool> read_body(Parser& parser);
  boost::asio::awaitable<Wait> read_more(Clock::time_point deadline);
  boost::asio::awaitable<bool> timed_out(std::string_view what, std::chrono::milliseconds limit);
  boost::asio::awaitable<void> refuse(const ApiError& error);
  boost::asio::awaitable<void> linger();

  // What needs no body to be answered: a page that asks whether it may ask, and whoever may not.
  std::optional<Reply> answer_early(const HttpRequest& request);
  // Each gives whether the connection can take another request.
  boost::asio::awaitable<bool> answer(HttpRequest& request);
  boost::asio::awaitable<bool> generate(Job job);
  boost::asio::awaitable<bool> stream(Job& job, Exchange& exchange);
  boost::asio::awaitable<bool> collect(Job& job, Exchange& exchange);
  boost::asio::awaitable<bool> send(const Reply& reply);
  boost::asio::awaitable<bool> send(Reply&&) = delete;  // gcc 12 can destroy temporaries of a co_await expression twice
  boost::asio::awaitable<bool> write(std::string_view bytes);

  // Waits for the exchange, the client's end or the deadline. What ended the request, if anything but its answer did.
  boost::asio::awaitable<std::optional<ApiError>> next_pieces(Exchange& exchange, std::vector<Piece>& pieces);
  std::optional<ApiError> failure_of(const Piece& piece) const;

  // Until the stream can go on.
  boost::asio::awaitable<Wait> wait(Stream::State need, Clock::time_point deadline);
  Stream::State receive();
  void begin_request(const HttpRequest* request);  // nullptr: one whose header could not be read
  // As much of the server's budget for bodies or replies, if there is as much. Given back at the request's end.
  bool hold_body(size_t bytes);
  bool hold_reply(size_t bytes);
  void watch();
  void on_readable();
  void wake_up();
  std::string head(int status, std::string_view content_type,
                   const std::vector<std::pair<std::string, std::string>>& headers) const;
  void note_answer(int status);
  void note_piece(const Piece& piece);
  void end_request();

  ConnectionContext& context_;
  Stream stream_;
  boost::beast::flat_buffer input_;  // what has come and is not yet parsed
  boost::asio::steady_timer timer_;  // of wait()
  boost::asio::steady_timer wake_;   // of next_pieces(): it is the condition that ends when the exchange has something
  bool timed_out_ = false, woken_ = false;
  bool idle_ = true;
  bool watch_waits_ = false;  // for the socket to be readable

  // Of the request under way.
  std::string request_id_, method_, path_, tenant_, cors_lines_;
  std::string_view route_name_;
  ErrorShape error_shape_ = ErrorShape::kOpenAi;
  Service* service_ = nullptr;  // as the request found it
  bool keep_alive_ = false, head_only_ = false, http_1_0_ = false, gone_ = false;
  Clock::time_point started_, deadline_;
  std::shared_ptr<Exchange> exchange_;
  bool watching_ = false;  // for the client's end, while its answer is generated
  size_t body_held_ = 0, reply_held_ = 0;
  int status_ = 0;  // 0: not answered
  int prompt_tokens_ = 0, cached_tokens_ = 0, completion_tokens_ = 0;
  std::string_view finish_;
  std::optional<Clock::time_point> first_token_;
};

}  // namespace quire
