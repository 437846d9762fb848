// One client's connection: HTTP/1.1 requests in, answers and streams out.
#pragma once

#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <memory>
#include <optional>
#include <string>

#include "server/exchange.h"
#include "server/server.h"
#include "server/service.h"

namespace quire {

// What the connections of a server share.
struct ConnectionContext {
  Service& service;
  const ServerOptions& options;
  boost::asio::thread_pool& workers;  // parse and tokenize, so that other clients' streams go on meanwhile
  std::atomic<bool> stopping{false};  // what is being answered goes on, nothing else begins
  std::atomic<bool> aborting{false};  // nor that
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

  boost::asio::awaitable<bool> read_request(Parser& parser);
  boost::asio::awaitable<bool> wait_for_bytes();
  boost::asio::awaitable<void> refuse(ErrorCode reason, bool in_body);
  boost::asio::awaitable<void> linger();

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

  void begin_request(const HttpRequest& request);
  void watch();
  void on_readable();
  void wake_up();
  std::string head(int status, std::string_view content_type,
                   const std::vector<std::pair<std::string, std::string>>& headers) const;
  void note_answer(int status);

  ConnectionContext& context_;
  boost::beast::tcp_stream stream_;
  boost::beast::flat_buffer buffer_;
  boost::asio::steady_timer wake_;
  bool woken_ = false;
  bool idle_ = true;
  bool waiting_ = false;  // for the socket to be readable

  // Of the request under way.
  std::string request_id_, log_name_;
  std::string_view route_name_;
  ErrorShape error_shape_ = ErrorShape::kOpenAi;
  bool keep_alive_ = false, head_only_ = false, http_1_0_ = false, bytes_sent_ = false, gone_ = false;
  std::chrono::steady_clock::time_point started_, deadline_;
  std::shared_ptr<Exchange> exchange_;
  bool watching_ = false;  // for the client's end, while its answer is generated
};

}  // namespace quire
