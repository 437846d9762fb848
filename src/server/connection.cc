// Requests in. What they are answered with: connection_answer.cc.
#if defined(__clang__)  // clang 14 cannot compile coroutines with -fsanitize=function, which the fuzz build has
#pragma clang attribute push(__attribute__((no_sanitize("function"))), apply_to = function)
#endif

#include "server/connection.h"

#include <algorithm>
#include <array>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/http/read.hpp>

// gcc 12 with sanitizers takes Asio's coroutine frames, whose new and delete are a pair, for a mismatch.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
#endif

namespace quire {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;

constexpr auto kTuple = asio::as_tuple(asio::use_awaitable);
constexpr size_t kReadBytes = 4096;           // what an idle connection holds
constexpr size_t kReadAheadBytes = 64 << 10;  // of pipelined requests while one is answered
constexpr size_t kLingerBytes = 64 << 20;
constexpr std::chrono::seconds kLinger{2};

bool is_request_id(std::string_view id) {
  return !id.empty() && id.size() <= 128 && std::ranges::all_of(id, [](char c) { return c > 0x20 && c < 0x7f; });
}

}  // namespace

Connection::Connection(asio::ip::tcp::socket socket, ConnectionContext& context)
    : context_(context),
      stream_(std::move(socket)),
      buffer_(context.options.max_header_bytes + 2 * kReadAheadBytes),
      wake_(stream_.get_executor()) {}

Connection::~Connection() {
  if (exchange_) exchange_->close();
}

asio::awaitable<void> Connection::run() {
  const auto self = shared_from_this();
  ErrorCode ignored;
  stream_.socket().set_option(asio::ip::tcp::no_delay(true), ignored);
  stream_.socket().non_blocking(true, ignored);
  for (bool more = true; more;) {
    Parser parser;
    if (!co_await read_request(parser)) break;
    HttpRequest request = parser.release();
    begin_request(request);
    more = co_await answer(request);
    exchange_.reset();
  }
  stream_.socket().shutdown(asio::ip::tcp::socket::shutdown_both, ignored);
  stream_.close();
}

asio::awaitable<bool> Connection::read_request(Parser& parser) {
  parser.header_limit(static_cast<uint32_t>(context_.options.max_header_bytes));
  parser.body_limit(context_.options.max_body_bytes);
  if (buffer_.size() == 0 && !co_await wait_for_bytes()) co_return false;

  stream_.expires_after(context_.options.header_timeout);
  auto [header_error, header_bytes] = co_await http::async_read_header(stream_, buffer_, parser, kTuple);
  if (header_error) {
    co_await refuse(header_error, false);
    co_return false;
  }
  stream_.expires_after(context_.options.body_timeout);
  if (boost::beast::iequals(parser.get()[http::field::expect], "100-continue") && !parser.is_done()) {
    if (!co_await write("HTTP/1.1 100 Continue\r\n\r\n")) co_return false;
    stream_.expires_after(context_.options.body_timeout);
  }
  auto [body_error, body_bytes] = co_await http::async_read(stream_, buffer_, parser, kTuple);
  stream_.expires_never();
  if (body_error) co_await refuse(body_error, true);
  co_return !body_error;
}

asio::awaitable<bool> Connection::wait_for_bytes() {
  if (context_.stopping) co_return false;
  idle_ = true;
  stream_.expires_after(context_.options.idle_timeout);
  auto [error, bytes] = co_await stream_.async_read_some(buffer_.prepare(kReadBytes), kTuple);
  idle_ = false;
  buffer_.commit(bytes);
  co_return !error;
}

asio::awaitable<void> Connection::refuse(ErrorCode reason, bool in_body) {
  request_id_ = fmt::format("{:016x}", random_u64());
  log_name_ = "a request that could not be read";
  route_name_ = "unreadable";
  keep_alive_ = head_only_ = false;
  started_ = std::chrono::steady_clock::now();
  const ServerOptions& options = context_.options;
  std::optional<ApiError> error;
  if (reason == http::error::header_limit || reason == http::error::buffer_overflow) {
    error.emplace(431, fmt::format("the header is larger than {} bytes", options.max_header_bytes));
  } else if (reason == http::error::body_limit) {
    error.emplace(413, fmt::format("the body is larger than {} bytes", options.max_body_bytes));
  } else if (reason == boost::beast::error::timeout) {
    error.emplace(
        408,
        fmt::format("the {} did not arrive within {} seconds", in_body ? "body" : "header",
                    static_cast<double>((in_body ? options.body_timeout : options.header_timeout).count()) / 1000));
  } else if (reason.category() == http::make_error_code(http::error::bad_method).category() &&
             reason != http::error::end_of_stream && reason != http::error::partial_message) {
    error.emplace(400, fmt::format("not HTTP/1.1: {}", reason.message()));
  }
  if (!error) co_return;  // the client is gone
  const Reply reply = error_reply(*error);
  if (reason == boost::beast::error::timeout) {
    // The stream has closed its socket; there is nobody left to tell.
    note_answer(reply.status);
    co_return;
  }
  co_await send(reply);
  co_await linger();
}

// Closing while the client still sends would reset the connection, and with it the answer that is on its way.
asio::awaitable<void> Connection::linger() {
  ErrorCode ignored;
  stream_.socket().shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
  stream_.expires_after(kLinger);
  std::array<char, 16384> discarded;
  for (size_t total = 0; total < kLingerBytes;) {
    auto [error, bytes] = co_await stream_.async_read_some(asio::buffer(discarded), kTuple);
    if (error) break;
    total += bytes;
  }
}

void Connection::begin_request(const HttpRequest& request) {
  const auto given = request["X-Request-Id"];
  request_id_ = is_request_id({given.data(), given.size()}) ? std::string(given)
                                                            : fmt::format("{:016x}{:016x}", random_u64(), random_u64());
  const auto method = request.method_string(), target = request.target();
  log_name_ = std::string(method) + ' ' + describe(Json(std::string(target)));
  keep_alive_ = request.keep_alive();
  head_only_ = request.method() == http::verb::head;
  http_1_0_ = request.version() < 11;
  route_name_ = "unknown";
  error_shape_ = ErrorShape::kOpenAi;
  bytes_sent_ = gone_ = false;
  started_ = std::chrono::steady_clock::now();
}

// While an answer is generated nobody reads from the socket, and yet the client's leaving must be seen: wait until the
// socket is readable, keep what comes (a pipelined request), take the end for what it is. A wait may outlive its
// answer; it ends with the next request's first byte, or serves the next answer.
void Connection::watch() {
  if (waiting_) return;
  waiting_ = true;
  stream_.socket().async_wait(asio::ip::tcp::socket::wait_read, [self = shared_from_this()](ErrorCode error) {
    self->waiting_ = false;
    if (!error && self->watching_) self->on_readable();
  });
}

void Connection::on_readable() {
  if (buffer_.size() >= kReadAheadBytes) return;
  ErrorCode error;
  const size_t bytes = stream_.socket().read_some(buffer_.prepare(kReadBytes), error);
  buffer_.commit(bytes);
  if (!error || error == asio::error::would_block) return watch();
  gone_ = true;
  exchange_->cancel();
  stream_.cancel();  // a write that waits for this client
  wake_up();
}

void Connection::wake_up() {
  woken_ = true;
  wake_.cancel();
}

void Connection::drain() {
  asio::post(stream_.get_executor(), [self = shared_from_this()] {
    if (self->idle_) self->stream_.cancel();
  });
}

void Connection::abort() {
  asio::post(stream_.get_executor(), [self = shared_from_this()] {
    if (self->exchange_) {
      self->exchange_->cancel();
    } else {
      self->stream_.cancel();
    }
  });
}

}  // namespace quire

#if defined(__clang__)
#pragma clang attribute pop
#endif
