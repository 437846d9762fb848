// Answers out.
#include <spdlog/spdlog.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/http/status.hpp>

#include "server/api/metrics.h"
#include "server/http/connection.h"
#include "server/http/log.h"

namespace quire {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;

constexpr auto kTuple = asio::as_tuple(asio::use_awaitable);
constexpr size_t kSmallReply = 4 << 10;  // not counted, and sent at once with its head
constexpr int kClientLeft = 499;         // in the log: nginx's number for it

void append_chunk(std::string_view data, bool chunked, std::string& out) {
  if (chunked) fmt::format_to(std::back_inserter(out), "{:x}\r\n", data.size());
  out += data;
  if (chunked) out += "\r\n";
}

using Seconds = std::chrono::duration<double>;

ApiError timeout_error() {
  return {504, "the answer was not complete within the request's time", "server_error", {}, "timeout"};
}
ApiError overloaded_error() {
  ApiError error(503, "the server holds as many bytes of answers as it may; try again later", "server_error", {},
                 "overloaded");
  error.retry_after = 1;
  return error;
}
ApiError stopping_error() { return {503, "the server is stopping", "server_error", {}, "stopping"}; }

Reply loading_reply(std::string_view path, ErrorShape shape) {
  if (path == "/health") return {.body = R"({"status":"loading"})"};
  ApiError error(503, "the model is still loading; try again later", "server_error", {}, "loading");
  error.retry_after = 2;
  return error_reply(error, shape);
}

}  // namespace

asio::awaitable<bool> Connection::answer(HttpRequest& request) {
  std::optional<Reply> reply;
  Job job;
  std::string allow;
  if (!service_) {
    reply = loading_reply(path_, error_shape_);
    co_return co_await send(*reply);
  }
  try {
    const Route route = find_route(request.method_string(), path_, allow);
    route_name_ = route.name;
    if (route.endpoint != Endpoint::kApi) {
      reply = service_->reply(route, context_.stopping);
    } else {
      if (context_.stopping) throw stopping_error();
      auto prepare = [&]() -> asio::awaitable<Job> {
        if (context_.aborting) throw stopping_error();
        co_return service_->prepare(route.api, request.body(), tenant_);
      };
      job = co_await asio::co_spawn(context_.workers, prepare(), asio::use_awaitable);
    }
  } catch (...) {
    reply = error_reply(current_api_error(), error_shape_);
    if (!allow.empty()) reply->headers.emplace_back("Allow", allow);
  }
  if (reply) co_return co_await send(*reply);
  request.body() = {};
  context_.bodies.give_back(std::exchange(body_held_, 0));
  co_return co_await generate(std::move(job));
}

asio::awaitable<bool> Connection::generate(Job job) {
  exchange_ = std::make_shared<Exchange>(
      service_->completer(), service_->metrics(),
      [weak = weak_from_this(), executor = stream_.socket().get_executor()] {
        asio::post(executor, [weak] {
          if (const auto self = weak.lock()) self->wake_up();
        });
      },
      context_.options.max_stream_bytes + job.prompt_bytes, context_.replies);
  const double limit = std::chrono::duration<double>(context_.options.request_timeout).count();  // 0: none
  deadline_ = Clock::time_point::max();
  for (Request& request : job.requests) {
    if (limit > 0) request.timeout = request.timeout > 0 ? std::min(request.timeout, limit) : limit;
    if (request.timeout > 0) deadline_ = started_ + duration_cast<Clock::duration>(Seconds(request.timeout));
    prompt_tokens_ += static_cast<int>(request.prompt.size());
  }
  std::optional<Reply> reply;
  try {
    exchange_->start(std::move(job.requests), std::move(job.places));
  } catch (...) {
    reply = error_reply(current_api_error(), error_shape_);
  }
  if (reply) co_return co_await send(*reply);

  if (context_.aborting) exchange_->cancel();
  watching_ = true;
  watch();
  const bool more = job.stream ? co_await stream(job, *exchange_) : co_await collect(job, *exchange_);
  watching_ = false;
  exchange_->close();
  co_return more && !gone_;
}

asio::awaitable<std::optional<ApiError>> Connection::next_pieces(Exchange& exchange, std::vector<Piece>& pieces) {
  if (!woken_ && !gone_) {
    wake_.expires_at(deadline_);
    co_await wake_.async_wait(kTuple);
  }
  woken_ = false;
  pieces.clear();
  exchange.take(pieces);
  for (const Piece& piece : pieces) note_piece(piece);
  if (exchange.overflowed()) {
    co_return ApiError(
        500,
        fmt::format("the client reads too slowly: more than {} bytes waited for it, or {} for all clients",
                    context_.options.max_stream_bytes, context_.options.max_replies_bytes),
        "server_error", {}, "slow_reader");
  }
  if (Clock::now() >= deadline_) {
    co_return timeout_error();
  }
  co_return std::nullopt;
}

std::optional<ApiError> Connection::failure_of(const Piece& piece) const {
  switch (piece.output.finish) {
    case FinishReason::kError:
      return ApiError(500, piece.output.error.empty() ? "the engine failed" : piece.output.error, "server_error");
    case FinishReason::kTimeout:
      return timeout_error();
    case FinishReason::kCancelled:
      return stopping_error();
    default:
      return std::nullopt;
  }
}

asio::awaitable<bool> Connection::collect(Job& job, Exchange& exchange) {
  int left = job.choices;
  Reply reply;
  std::vector<Piece> pieces;
  while (left > 0) {
    std::optional<ApiError> failure = co_await next_pieces(exchange, pieces);
    if (gone_) co_return false;
    for (const Piece& piece : pieces) {
      if (!failure) failure = failure_of(piece);
      if (!failure && !hold_reply(reply_held_ + payload_bytes(piece.output))) failure = overloaded_error();
      if (failure) break;
      job.answer->add(piece.choice, piece.output, reply.body);
      left -= piece.output.finish != FinishReason::kNone;
    }
    if (failure) {
      exchange.close();
      reply = error_reply(*failure, error_shape_);
      co_return co_await send(reply);
    }
  }
  job.answer->end(reply.body);
  job.answer.reset();
  co_return co_await send(reply);
}

asio::awaitable<bool> Connection::stream(Job& job, Exchange& exchange) {
  int left = job.choices;
  const bool chunked = !http_1_0_;
  if (!chunked) keep_alive_ = false;  // the end of the connection is the end of the answer
  std::vector<Piece> pieces;
  std::string events, out;
  bool begun = false;
  while (left > 0) {
    std::optional<ApiError> failure = co_await next_pieces(exchange, pieces);
    if (gone_) co_return false;
    events.clear();
    for (const Piece& piece : pieces) {
      if (!failure) failure = failure_of(piece);
      if (failure) break;
      job.answer->add(piece.choice, piece.output, events);
      left -= piece.output.finish != FinishReason::kNone;
    }
    if (!failure && !hold_reply(events.size())) {
      failure = overloaded_error();
      events.clear();
    }
    if (failure) {
      exchange.close();
      keep_alive_ = keep_alive_ && !begun;
      if (!begun) {  // still a status, not an event
        const Reply reply = error_reply(*failure, error_shape_);
        co_return co_await send(reply);
      }
      job.answer->fail(*failure, events);
      left = 0;
    } else if (left == 0) {
      job.answer->end(events);
    }
    if (events.empty()) continue;
    out.clear();
    if (!begun) {
      std::vector<std::pair<std::string, std::string>> headers = {{"Cache-Control", "no-cache"},
                                                                  {"X-Accel-Buffering", "no"}};
      if (chunked) headers.emplace_back("Transfer-Encoding", "chunked");
      out = head(200, "text/event-stream; charset=utf-8", headers);
      begun = true;
      note_answer(200);
    }
    append_chunk(events, chunked, out);
    if (left == 0 && chunked) out += "0\r\n\r\n";
    if (!co_await write(out)) co_return false;
    context_.replies.give_back(std::exchange(reply_held_, 0));
  }
  co_return keep_alive_;
}

std::string Connection::head(int status, std::string_view content_type,
                             const std::vector<std::pair<std::string, std::string>>& headers) const {
  const std::string_view reason = http::obsolete_reason(static_cast<http::status>(status));
  std::string text =
      fmt::format("HTTP/1.1 {} {}\r\nServer: quire\r\nContent-Type: {}\r\nX-Request-Id: {}\r\nConnection: {}\r\n",
                  status, reason, content_type, request_id_, keep_alive_ ? "keep-alive" : "close");
  text += cors_lines_;
  for (const auto& [name, value] : headers) text += name + ": " + value + "\r\n";
  return text + "\r\n";
}

void Connection::note_answer(int status) {
  if (service_) service_->metrics()->http_answered(route_name_, status);
  status_ = status;
}

void Connection::note_piece(const Piece& piece) {
  if (!first_token_ && !piece.output.tokens.empty()) first_token_ = Clock::now();
  completion_tokens_ += static_cast<int>(piece.output.tokens.size());
  if (piece.output.finish == FinishReason::kNone) return;
  finish_ = finished_reason(piece.output.finish);
  if (piece.output.choice == 0) cached_tokens_ += piece.output.usage.cached_tokens;
}

void Connection::end_request() {
  if (!context_.log.should_log(spdlog::level::info)) return;
  const std::string path = loggable(path_, 256);
  const LoggedRequest record{.id = request_id_,
                             .tenant = tenant_,
                             .method = method_,
                             .path = path,
                             .status = status_ == 0 ? kClientLeft : status_,
                             .prompt_tokens = prompt_tokens_,
                             .cached_tokens = cached_tokens_,
                             .completion_tokens = completion_tokens_,
                             .finish = finish_.empty() && prompt_tokens_ > 0 ? "abort" : finish_,
                             .ttft = first_token_ ? *first_token_ - started_ : std::chrono::nanoseconds(-1),
                             .duration = Clock::now() - started_};
  context_.log.info(request_line(record, context_.options.log_format));
}

bool Connection::hold_reply(size_t bytes) {
  if (bytes <= reply_held_) return true;
  if (!context_.replies.take(bytes - reply_held_)) return false;
  reply_held_ = bytes;
  return true;
}

asio::awaitable<bool> Connection::send(const Reply& whole) {
  const bool small = whole.body.size() <= kSmallReply, held = small || hold_reply(whole.body.size());
  const Reply refusal = held ? Reply{} : error_reply(overloaded_error(), error_shape_);
  const Reply& reply = held ? whole : refusal;
  if (context_.stopping) keep_alive_ = false;
  note_answer(reply.status);
  auto headers = reply.headers;
  headers.emplace_back("Content-Length", std::to_string(reply.body.size()));
  std::string out = head(reply.status, reply.content_type, headers);
  const std::string_view body = head_only_ ? std::string_view() : reply.body;
  if (body.size() <= kSmallReply) {
    out += body;
    co_return co_await write(out) && keep_alive_;
  }
  if (!co_await write(out)) co_return false;
  co_return co_await write(body) && keep_alive_;
}

asio::awaitable<bool> Connection::write(std::string_view bytes) {
  const auto deadline = Clock::now() + context_.options.write_timeout;
  while (!bytes.empty() && !gone_) {
    const Stream::Transfer written = stream_.write(bytes);
    bytes.remove_prefix(written.bytes);
    if (written.state == Stream::State::kDone) continue;
    gone_ = written.state == Stream::State::kEnd;
    if (gone_) break;
    const Wait waited = co_await wait(written.state, deadline);
    gone_ = gone_ || waited != Wait::kReady;
  }
  co_return !gone_;
}

}  // namespace quire
