// Requests in. What they are answered with: connection_answer.cc.
#include "server/http/connection.h"

#include <algorithm>
#include <array>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/http/error.hpp>

#include "server/http/log.h"

namespace quire {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;

constexpr auto kTuple = asio::as_tuple(asio::use_awaitable);
constexpr size_t kReadBytes = 16 << 10;                   // at once: a TLS record, and more than most requests
constexpr size_t kReadAheadBytes = 64 << 10;              // of pipelined requests while one is answered
constexpr size_t kSmallBody = 64 << 10, kSparedPart = 8;  // large bodies that stall leave an eighth to small ones
constexpr size_t kLingerBytes = 64 << 20;
constexpr std::chrono::seconds kLinger{2};

bool is_request_id(std::string_view id) {
  return !id.empty() && id.size() <= 128 && std::ranges::all_of(id, [](char c) { return c > 0x20 && c < 0x7f; });
}

double seconds(std::chrono::milliseconds time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

Connection::Connection(asio::ip::tcp::socket socket, ConnectionContext& context)
    : context_(context),
      stream_(std::move(socket), context.tls),
      input_(context.options.max_header_bytes + 2 * kReadAheadBytes),
      timer_(stream_.socket().get_executor()),
      wake_(stream_.socket().get_executor()) {}

Connection::~Connection() {
  if (exchange_) exchange_->close();
  context_.bodies.give_back(body_held_);
  context_.replies.give_back(reply_held_);
}

asio::awaitable<void> Connection::run() {
  const auto self = shared_from_this();
  bool more = co_await handshake();
  while (more) {
    more = co_await wait_for_request();
    if (!more) break;
    Parser parser;
    parser.header_limit(static_cast<uint32_t>(context_.options.max_header_bytes));
    parser.body_limit(context_.options.max_body_bytes);
    more = co_await read_header(parser);
    if (!more) break;
    const std::optional<Reply> early = answer_early(parser.get());
    if (early) {
      keep_alive_ = keep_alive_ && parser.is_done();
      more = co_await send(*early);
      if (!parser.is_done()) co_await linger();
    } else {
      more = co_await read_body(parser);
      if (!more) break;
      HttpRequest request = parser.release();
      more = co_await answer(request);
    }
    end_request();
    exchange_.reset();
    context_.bodies.give_back(std::exchange(body_held_, 0));
    context_.replies.give_back(std::exchange(reply_held_, 0));
  }
  stream_.close();
}

asio::awaitable<bool> Connection::handshake() {
  if (!stream_.secure()) co_return true;
  const auto deadline = Clock::now() + context_.options.header_timeout;
  for (;;) {
    const Stream::State state = stream_.handshake();
    if (state == Stream::State::kDone) co_return true;
    if (state == Stream::State::kEnd) break;
    const Wait waited = co_await wait(state, deadline);
    if (waited != Wait::kReady) co_return false;
  }
  if (stream_.spoke_http()) {
    begin_request(nullptr);
    const ApiError error(400, "this port takes HTTPS only");
    co_await refuse(error);
  }
  co_return false;
}

asio::awaitable<bool> Connection::wait_for_request() {
  if (input_.size() > 0) co_return true;
  input_.shrink_to_fit();
  if (context_.stopping) co_return false;
  idle_ = true;
  const auto deadline = Clock::now() + context_.options.idle_timeout;
  const Wait read = co_await read_more(deadline);
  idle_ = false;
  co_return read == Wait::kReady;
}

asio::awaitable<bool> Connection::read_header(Parser& parser) {
  const auto deadline = Clock::now() + context_.options.header_timeout;
  for (ErrorCode error; !parser.is_header_done();) {
    input_.consume(parser.put(input_.data(), error));
    if (error == http::error::need_more && !parser.is_header_done()) {
      const Wait read = co_await read_more(deadline);
      if (read == Wait::kReady) continue;
      if (read == Wait::kTimeout) {
        begin_request(nullptr);
        co_return co_await timed_out("header", context_.options.header_timeout);
      }
      co_return false;
    }
    if (!error || error == http::error::need_more) continue;
    begin_request(error == http::error::body_limit ? &parser.get() : nullptr);
    std::optional<ApiError> refusal;
    if (error == http::error::header_limit) {
      refusal.emplace(431, fmt::format("the header is larger than {} bytes", context_.options.max_header_bytes));
    } else if (error == http::error::body_limit) {
      refusal.emplace(413, fmt::format("the body is larger than {} bytes", context_.options.max_body_bytes));
    } else {
      refusal.emplace(400, fmt::format("not HTTP/1.1: {}", error.message()));
    }
    co_await refuse(*refusal);
    co_return false;
  }
  const HttpRequest& request = parser.get();
  begin_request(&request);
  // Beast takes a body in a coding that it does not know for no body, and its bytes for the next request.
  if (request.count(http::field::transfer_encoding) > 0 &&
      !boost::beast::iequals(request[http::field::transfer_encoding], "chunked")) {
    const ApiError error(501, "Transfer-Encoding: only chunked is known here");
    co_await refuse(error);
    co_return false;
  }
  co_return true;
}

asio::awaitable<bool> Connection::read_body(Parser& parser) {
  if (parser.is_done()) co_return true;
  const auto deadline = Clock::now() + context_.options.body_timeout;
  if (!http_1_0_ && input_.size() == 0 && boost::beast::iequals(parser.get()[http::field::expect], "100-continue")) {
    if (!co_await write("HTTP/1.1 100 Continue\r\n\r\n")) co_return false;
  }
  std::optional<ApiError> refusal;
  for (ErrorCode error; !parser.is_done() && !refusal;) {
    size_t used = 0;
    if (input_.size() > 0) {
      used = parser.put(input_.data(), error);
      input_.consume(used);
    }
    if (!hold_body(parser.get().body().size())) {
      refusal.emplace(503, "the server holds as many bytes of other requests as it may; try again later",
                      "server_error", "", "overloaded");
      refusal->retry_after = 1;
    } else if (error == http::error::body_limit) {
      refusal.emplace(413, fmt::format("the body is larger than {} bytes", context_.options.max_body_bytes));
    } else if (error && error != http::error::need_more) {
      refusal.emplace(400, fmt::format("not HTTP/1.1: {}", error.message()));
    } else if (!parser.is_done() && (used == 0 || input_.size() == 0)) {
      const Wait read = co_await read_more(deadline);
      if (read == Wait::kTimeout) co_return co_await timed_out("body", context_.options.body_timeout);
      if (read == Wait::kGone) co_return false;
    }
  }
  if (refusal) co_await refuse(*refusal);
  co_return !refusal;
}

bool Connection::hold_body(size_t bytes) {
  if (bytes <= body_held_) return true;
  const size_t spared = bytes > kSmallBody ? context_.options.max_bodies_bytes / kSparedPart : 0;
  if (!context_.bodies.take(bytes - body_held_, spared)) return false;
  body_held_ = bytes;
  return true;
}

// At least one byte more behind `input_`. Nothing is allocated before there is something to hold.
asio::awaitable<Connection::Wait> Connection::read_more(Clock::time_point deadline) {
  for (;;) {
    const Stream::State state = receive();
    if (state == Stream::State::kDone) co_return Wait::kReady;
    if (state == Stream::State::kEnd) co_return Wait::kGone;
    const Wait waited = co_await wait(state, deadline);
    if (waited != Wait::kReady) co_return waited;
  }
}

Stream::State Connection::receive() {
  std::array<char, kReadBytes> bytes;
  const size_t room = std::min(bytes.size(), input_.max_size() - input_.size());
  if (room == 0) return Stream::State::kEnd;  // a chunk's header that never ends
  const Stream::Transfer read = stream_.read(std::span(bytes).first(room));
  input_.commit(asio::buffer_copy(input_.prepare(read.bytes), asio::buffer(bytes, read.bytes)));
  return read.state;
}

asio::awaitable<Connection::Wait> Connection::wait(Stream::State need, Clock::time_point deadline) {
  if (gone_) co_return Wait::kGone;
  timed_out_ = false;
  timer_.expires_at(deadline);
  timer_.async_wait([self = shared_from_this()](ErrorCode) {
    // A wait that has ended meanwhile has set the timer anew.
    if (self->timer_.expiry() > Clock::now()) return;
    self->timed_out_ = true;
    self->stream_.cancel();
  });
  const auto type =
      need == Stream::State::kWantsWrite ? asio::ip::tcp::socket::wait_write : asio::ip::tcp::socket::wait_read;
  auto [error] = co_await stream_.socket().async_wait(type, kTuple);
  timer_.expires_at(Clock::time_point::max());
  co_return !error ? Wait::kReady : timed_out_ ? Wait::kTimeout : Wait::kGone;
}

asio::awaitable<bool> Connection::timed_out(std::string_view what, std::chrono::milliseconds limit) {
  const ApiError error(408, fmt::format("the {} did not arrive within {} seconds", what, seconds(limit)));
  co_await refuse(error);
  co_return false;
}

asio::awaitable<void> Connection::refuse(const ApiError& error) {
  keep_alive_ = false;
  const Reply reply = error_reply(error, error_shape_);
  co_await send(reply);
  end_request();
  co_await linger();
}

// Closing while the client still sends would reset the connection, and with it the answer that is on its way.
asio::awaitable<void> Connection::linger() {
  stream_.end_writing();
  const auto deadline = Clock::now() + kLinger;
  for (size_t total = 0; total < kLingerBytes;) {
    const Stream::Transfer discarded = stream_.discard();
    if (discarded.state == Stream::State::kEnd) break;
    total += discarded.bytes;
    if (discarded.state == Stream::State::kDone) continue;
    const Wait waited = co_await wait(discarded.state, deadline);
    if (waited != Wait::kReady) break;
  }
}

void Connection::begin_request(const HttpRequest* request) {
  const auto text = [&](const auto& field) {
    return request ? std::string_view((*request)[field]) : std::string_view();
  };
  const std::string_view given = text("X-Request-Id");
  request_id_ = is_request_id(given) ? std::string(given) : fmt::format("{:016x}{:016x}", random_u64(), random_u64());
  cors_lines_ = cors_lines(context_.options.cors, text(http::field::origin));
  method_ = request ? loggable(request->method_string(), 32) : "-";
  path_ = request ? path_of_target(request->target()) : "-";
  tenant_.clear();
  keep_alive_ = request && request->keep_alive();
  head_only_ = request && request->method() == http::verb::head;
  http_1_0_ = request && request->version() < 11;
  route_name_ = request ? "unknown" : "unreadable";
  service_ = context_.service.load(std::memory_order_acquire);
  error_shape_ = error_shape_of(path_);
  gone_ = false;
  status_ = prompt_tokens_ = cached_tokens_ = completion_tokens_ = 0;
  finish_ = {};
  first_token_.reset();
  started_ = Clock::now();
}

std::optional<Reply> Connection::answer_early(const HttpRequest& request) {
  if (request.method() == http::verb::options) {
    auto asked = preflight(context_.options.cors, request[http::field::origin],
                           request[http::field::access_control_request_method],
                           request[http::field::access_control_request_headers]);
    if (asked && asked->allowed) {
      return Reply{.body = "OK", .content_type = "text/plain", .headers = std::move(asked->headers)};
    }
    if (asked) {
      return error_reply({403, "pages of this origin may not ask this", "invalid_request_error", {}, "cors"});
    }
  }
  if (!context_.keys.required() || needs_no_key(path_)) return std::nullopt;
  std::string_view key = bearer_key(request[http::field::authorization]);
  if (key.empty()) key = request["x-api-key"];  // Anthropic's clients
  if (const auto name = context_.keys.name_of(key)) {
    tenant_ = *name;
    return std::nullopt;
  }
  const ApiError error(401, key.empty() ? "an API key is needed: Authorization: Bearer KEY" : "wrong API key",
                       "invalid_request_error", {}, "invalid_api_key");
  Reply reply = error_reply(error, error_shape_);
  reply.headers.emplace_back("WWW-Authenticate", "Bearer");
  return reply;
}

// While an answer is generated nobody reads from the socket, and yet the client's leaving must be seen: wait until the
// socket is readable, keep what comes (a pipelined request), take the end for what it is. A wait may outlive its
// answer; it ends with the next request's first byte, or serves the next answer.
void Connection::watch() {
  if (watch_waits_) return;
  watch_waits_ = true;
  stream_.socket().async_wait(asio::ip::tcp::socket::wait_read, [self = shared_from_this()](ErrorCode error) {
    self->watch_waits_ = false;
    if (!error && self->watching_) self->on_readable();
  });
}

void Connection::on_readable() {
  if (input_.size() >= kReadAheadBytes) return;
  if (receive() != Stream::State::kEnd) return watch();
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
  asio::post(stream_.socket().get_executor(), [self = shared_from_this()] {
    if (self->idle_) self->stream_.cancel();
  });
}

void Connection::abort() {
  asio::post(stream_.socket().get_executor(), [self = shared_from_this()] {
    if (self->exchange_) {
      self->exchange_->cancel();
    } else {
      self->stream_.cancel();
    }
  });
}

}  // namespace quire
