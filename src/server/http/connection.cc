// The life of a connection. Answering is in answer_request.cc.
#include "server/http/connection.h"

#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "server/http/early_reply.h"
#include "server/http/request_tracing.h"

namespace quire {
namespace {

namespace asio = boost::asio;

constexpr size_t kReadAheadBytes = 64 << 10;  // how much of pipelined requests is read while one is answered
constexpr std::string_view kProbe = "HTTP/1.1 100 Continue\r\n\r\n";

}  // namespace

Connection::Connection(Socket socket, bool guarded, bool trusted, ConnectionContext& context)
    : context_(context),
      guarded_(guarded),
      trusted_(trusted),
      channel_(std::make_shared<Channel>(std::move(socket), context.tls,
                                         context.options.max_header_bytes + 2 * kReadAheadBytes)),
      wake_(channel_->executor()) {}

Connection::~Connection() {
  if (request_ && request_->exchange) request_->exchange->close();
}

asio::awaitable<void> Connection::run() {
  const auto self = shared_from_this();
  // Closes the stream even if answering throws, so that no client waits for an answer that never comes.
  struct Closing {
    ByteStream& stream;
    ~Closing() { stream.close(); }
  } closing{channel_->stream()};
  bool more = co_await handshake();
  while (more) {
    more = co_await wait_for_request();
    if (!more) break;
    more = co_await serve();
    request_.reset();
  }
}

asio::awaitable<bool> Connection::handshake() {
  ByteStream& stream = channel_->stream();
  if (!stream.secure()) co_return true;
  const auto deadline = Clock::now() + context_.options.header_timeout;
  for (;;) {
    const ByteStream::State state = stream.handshake();
    if (state == ByteStream::State::kDone) co_return true;
    if (state == ByteStream::State::kEnd || state == ByteStream::State::kBroken) break;
    const Channel::Wait waited = co_await channel_->wait(state, deadline);
    if (waited != Channel::Wait::kReady) co_return false;
  }
  if (stream.spoke_http()) {
    request_.emplace(context_, nullptr);
    const ApiError error(400, "this port takes HTTPS only");
    co_await refuse(error);
  }
  co_return false;
}

asio::awaitable<bool> Connection::wait_for_request() {
  auto& input = channel_->input();
  if (input.size() > 0) co_return true;
  input.shrink_to_fit();
  if (context_.stopping) co_return false;
  idle_ = true;
  const auto deadline = Clock::now() + context_.options.idle_timeout;
  const Channel::Wait read = co_await channel_->read_more(deadline);
  idle_ = false;
  co_return read == Channel::Wait::kReady;
}

asio::awaitable<bool> Connection::serve() {
  RequestReader reader(*channel_, context_.options);
  RequestReader::Outcome outcome = co_await reader.read_header();
  if (outcome == RequestReader::Outcome::kGone) co_return false;
  request_.emplace(context_, reader.header());
  if (outcome == RequestReader::Outcome::kRefused) {
    co_await refuse(reader.refusal());
    co_return false;
  }
  ResponseWriter writer(*channel_, context_, *request_);
  request_->tenant.is_operator = trusted_ && !context_.keys.required();
  const std::optional<Reply> early = early_reply(*reader.header(), guarded_, context_, *request_);
  const StoreDefinition* const upload = find_upload(request_->method, request_->path);
  bool more = false;
  if (!early && upload) {
    more = co_await receive_upload(*upload, reader, writer);
  } else if (early) {
    request_->keep_alive = request_->keep_alive && reader.done();
    more = co_await writer.send(*early);
    if (!reader.done()) co_await channel_->linger();
  } else {
    outcome = co_await reader.read_body(request_->body);
    if (outcome == RequestReader::Outcome::kRefused) co_await refuse(reader.refusal());
    if (outcome != RequestReader::Outcome::kRead) co_return false;
    HttpRequest http = reader.release();
    more = co_await answer(http, writer);
  }
  log_request(*request_, context_);
  export_span(*request_, context_);
  co_return more;
}

asio::awaitable<void> Connection::refuse(const ApiError& error) {
  request_->keep_alive = false;
  const Reply reply = error_reply(error, request_->error_shape);
  ResponseWriter writer(*channel_, context_, *request_);
  co_await writer.send(reply);
  log_request(*request_, context_);
  co_await channel_->linger();
}

// While an answer is generated, nobody reads from the socket, and yet the client's leaving must be noticed. So wait
// until the socket is readable and keep the bytes that come (a pipelined request). A wait may outlive its answer: it
// ends with the next request's first byte, or serves the next answer.
void Connection::watch() {
  if (watch_waits_) return;
  watch_waits_ = true;
  channel_->stream().socket().async_wait(half_closed_ ? Socket::wait_error : Socket::wait_read,
                                         [self = shared_from_this()](ErrorCode error) {
                                           self->watch_waits_ = false;
                                           if (error || !self->watching_) return;
                                           if (self->half_closed_) return self->on_gone();
                                           self->on_readable();
                                         });
}

void Connection::on_readable() {
  if (channel_->input().size() >= kReadAheadBytes) return;
  switch (channel_->receive()) {
    case ByteStream::State::kEnd:
      return on_half_closed();
    case ByteStream::State::kBroken:
      return on_gone();
    default:
      return watch();
  }
}

// The client has closed its sending side. It may still want the answer or may have gone; TCP tells only in reply to
// bytes that we send. A stream's events are such bytes; before the answer begins, an interim response is, which every
// HTTP/1.1 client must skip.
void Connection::on_half_closed() {
  half_closed_ = true;
  if (request_->http_1_0) return on_gone();
  if (request_->status == 0 && channel_->stream().write(kProbe).state != ByteStream::State::kDone) return on_gone();
  watch();
}

void Connection::on_gone() {
  channel_->give_up();
  if (request_->exchange) request_->exchange->cancel();
  channel_->stream().cancel();  // a write that waits for this client
  wake_up();
}

void Connection::wake_up() {
  woken_ = true;
  wake_.cancel();
}

void Connection::drain() {
  asio::post(channel_->executor(), [self = shared_from_this()] {
    if (self->idle_) self->channel_->stream().cancel();
  });
}

void Connection::abort() {
  asio::post(channel_->executor(), [self = shared_from_this()] {
    if (self->request_ && self->request_->exchange) {
      self->request_->exchange->cancel();
    } else {
      self->channel_->stream().cancel();
      self->wake_up();  // it may wait for a model
    }
  });
}

}  // namespace quire
