// How a connection answers a request that has been read.
#include <malloc.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "server/api/failure.h"
#include "server/api/metrics.h"
#include "server/api/routes.h"
#include "server/http/connection.h"
#include "server/http/request_tracing.h"

namespace quire {
namespace {

namespace asio = boost::asio;

using Seconds = std::chrono::duration<double>;

constexpr size_t kMuchMemory = 4 << 20;  // freed memory that is worth a system call to return

ApiError load_timeout_error(const std::string& model) {
  ApiError error(503, fmt::format("the model {} is still being loaded; try again later", describe(Json(model))),
                 "server_error", {}, "loading");
  error.retry_after = 5;
  return error;
}

ApiError slow_reader_error(const ServerOptions& options) {
  return {500,
          fmt::format("the client reads too slowly: more than {} bytes waited for it, or {} for all clients",
                      options.max_stream_bytes, options.max_replies_bytes),
          "server_error",
          {},
          "slow_reader"};
}

ApiError too_many_readers_error() {
  ApiError error(503, "as many pages as may watch this server do already; try again later", "server_error", {},
                 "overloaded");
  error.retry_after = 5;
  return error;
}

ApiError too_many_requests_error() {
  ApiError error(503, "the server holds as many bytes of requests as it may; try again later", "server_error", {},
                 "overloaded");
  error.retry_after = 1;
  return error;
}

Reply loading_reply(std::string_view path, ErrorShape shape) {
  if (path == "/health") return {.body = R"({"status":"loading"})"};
  ApiError error(503, "the model is still loading; try again later", "server_error", {}, "loading");
  error.retry_after = 2;
  return error_reply(error, shape);
}

void require_operator(const Tenant& tenant, bool has_keys) {
  if (tenant.is_operator) return;
  throw ApiError(403,
                 has_keys ? "this is for the operator: send an admin key (--admin-key)"
                          : "this is for the operator: start the server with --admin-key, and send such a key; without "
                            "keys, only programs of the server's own machine may do it",
                 "permission_error", {}, "not_an_operator");
}

// Browsers ask for text/html, and curl for anything.
bool wants_plain_text(std::string_view accept) {
  return accept.find("text/plain") != accept.npos && accept.find("text/html") == accept.npos;
}

// Runs act() on a worker. What it has freed goes back to the system: the allocator would keep it.
template <class Act>
asio::awaitable<std::invoke_result_t<const Act&>> on_worker(asio::thread_pool& worker, const WorkingMemory& memory,
                                                            const Act& act) {
  struct Trim {
    const WorkingMemory& memory;
    ~Trim() {
      if (memory.most() > kMuchMemory) malloc_trim(0);
    }
  };
  auto work = [&]() -> asio::awaitable<std::invoke_result_t<const Act&>> {
    const Trim trim{memory};
    co_return act();
  };
  co_return co_await asio::co_spawn(worker, work(), asio::use_awaitable);
}

}  // namespace

asio::awaitable<bool> Connection::answer(HttpRequest& http, ResponseWriter& writer) {
  std::optional<Reply> reply;
  std::optional<StoreReply> stored;
  Job job;
  std::string allow;
  LiveFeed* live = nullptr;
  const Models* const models = request_->models;
  if (!models) {
    reply = loading_reply(request_->path, request_->error_shape);
    co_return co_await writer.send(*reply);
  }
  try {
    const Route route = find_route(http.method_string(), request_->path, allow);
    request_->route = route.name;
    if (route.get) {
      const std::string_view host = http[boost::beast::http::field::host];
      const GetRequest asked{.argument = route.argument,
                             .query = query_of_target(http.target()),
                             .url = fmt::format("{}://{}", channel_->stream().secure() ? "https" : "http", host),
                             .plain = wants_plain_text(http[boost::beast::http::field::accept]),
                             .stopping = context_.draining};
      reply = route.get->reply(*models, asked);
      if (route.get->live && !request_->head_only) live = &route.get->live(*models, asked);
    } else if (route.store) {
      stored = co_await answer_stored(route, http);
    } else {
      if (context_.stopping) throw stopping_error();
      if (route.api->for_operators) require_operator(request_->tenant, context_.keys.required());
      job = co_await prepare(*route.api, http);
      if (job.task) require_operator(request_->tenant, context_.keys.required());
      const size_t spared = job.bytes > kSmallBody ? context_.options.max_bodies_bytes / kSparedPart : 0;
      if (!request_->body.change_to(job.choices > 0 ? job.bytes : 0, spared)) throw too_many_requests_error();
    }
  } catch (...) {
    reply = error_reply(current_api_error(), request_->error_shape);
    if (!allow.empty()) reply->headers.emplace_back("Allow", allow);
  }
  http.body() = {};
  if (live) {
    request_->body.release();
    co_return co_await show_live(*live, writer);
  }
  if (stored) {
    request_->body.release();
    if (stored->file) co_return co_await writer.send_file(*stored, context_.disk);
    reply = std::move(stored->reply);
  }
  if (reply) {
    request_->body.release();
    co_return co_await writer.send(*reply);
  }
  if (job.task) co_return co_await run_task(std::move(job), writer);
  co_return co_await generate(std::move(job), writer);
}

// A small body that turns out to need much memory waits with the large ones.
asio::awaitable<Job> Connection::prepare(const ApiDefinition& api, const HttpRequest& http) {
  const ServerOptions& options = context_.options;
  for (bool small = http.body().size() <= kSmallBody;;) {
    WorkingMemory memory(small ? options.small_work_bytes : options.large_work_bytes);
    asio::thread_pool& worker = small ? context_.small_bodies : context_.large_bodies;
    const auto act = [&] {
      if (context_.aborting) throw stopping_error();
      return request_->models->prepare(api, http.body(), request_->tenant, memory, request_->lease);
    };
    std::optional<size_t> missing;
    try {
      co_return co_await on_worker(worker, memory, act);
    } catch (const ModelNotLoaded& e) {
      missing = e.model;
    } catch (const ApiError&) {
      if (!small || !memory.exceeded()) throw;
      small = false;
    }
    if (missing) co_await load(*missing);
  }
}

// Throws ApiError: the model cannot be loaded, or not in time.
asio::awaitable<void> Connection::load(size_t model) {
  struct Wait {
    bool over = false;
    ServiceLease lease = {};
    std::exception_ptr failure = nullptr;
  };
  const auto wait = std::make_shared<Wait>();
  woken_ = false;
  watching_ = true;
  watch();
  request_->models->acquire(model, [weak = weak_from_this(), executor = channel_->executor(), wait](
                                       ServiceLease lease, std::exception_ptr failure) {
    asio::post(executor, [weak, wait, lease = std::move(lease), failure = std::move(failure)]() mutable {
      *wait = {.over = true, .lease = std::move(lease), .failure = std::move(failure)};
      if (const auto self = weak.lock()) self->wake_up();
    });
  });
  const Clock::time_point deadline = Clock::now() + context_.options.load_timeout;
  while (!wait->over && !channel_->gone() && !context_.aborting && Clock::now() < deadline) {
    if (!std::exchange(woken_, false)) {
      wake_.expires_at(deadline);
      co_await wake_.async_wait(kTuple);
    }
  }
  watching_ = false;
  if (context_.aborting || channel_->gone()) throw stopping_error();
  const std::string name = request_->models->list(model).names.names.front();
  if (!wait->over) throw load_timeout_error(name);
  if (wait->failure) throw load_error(name, wait->failure);
  request_->lease = std::move(wait->lease);
}

asio::awaitable<bool> Connection::generate(Job job, ResponseWriter& writer) {
  CurrentRequest& current = *request_;
  woken_ = false;
  current.exchange = std::make_shared<Exchange>(
      *job.completer, job.metrics,
      [weak = weak_from_this(), executor = channel_->executor()] {
        asio::post(executor, [weak] {
          if (const auto self = weak.lock()) self->wake_up();
        });
      },
      context_.options.max_stream_bytes + job.prompt_bytes, context_.replies);
  const double limit = Seconds(context_.options.request_timeout).count();  // 0: none
  for (Request& request : job.requests) {
    if (limit > 0) request.timeout = request.timeout > 0 ? std::min(request.timeout, limit) : limit;
    if (request.timeout > 0) {
      current.deadline = current.started + duration_cast<Clock::duration>(Seconds(request.timeout));
    }
    current.prompt_tokens += static_cast<int>(request.prompt.size());
    request.trace_label = current.id;
  }
  if (current.span) describe(*current.span, job.requests, job.model);
  std::optional<Reply> reply;
  try {
    current.exchange->start(std::move(job.requests), std::move(job.places));
  } catch (...) {
    reply = error_reply(current_api_error(), current.error_shape);
  }
  if (reply) co_return co_await writer.send(*reply);

  if (context_.aborting) current.exchange->cancel();
  watching_ = true;
  watch();
  const bool more = job.stream ? co_await stream(job, writer) : co_await collect(job, writer);
  watching_ = false;
  current.exchange->close();
  co_return more && !channel_->gone();
}

asio::awaitable<std::optional<ApiError>> Connection::next_pieces(std::vector<Piece>& pieces) {
  CurrentRequest& current = *request_;
  if (!woken_ && !channel_->gone()) {
    wake_.expires_at(current.deadline);
    co_await wake_.async_wait(kTuple);
  }
  woken_ = false;
  pieces.clear();
  current.exchange->take(pieces);
  for (const Piece& piece : pieces) current.count(piece.output);
  if (current.exchange->overflowed()) co_return slow_reader_error(context_.options);
  if (Clock::now() >= current.deadline) co_return timeout_error();
  co_return std::nullopt;
}

asio::awaitable<bool> Connection::collect(Job& job, ResponseWriter& writer) {
  int left = job.choices;
  Reply reply;
  std::vector<Piece> pieces;
  HeldBytes& held = request_->reply;
  while (left > 0) {
    std::optional<ApiError> failure = co_await next_pieces(pieces);
    if (channel_->gone()) co_return false;
    for (const Piece& piece : pieces) {
      if (!failure) failure = failure_of(piece.output);
      if (!failure && !held.grow_to(held.bytes() + payload_bytes(piece.output))) failure = overloaded_error();
      if (failure) break;
      job.answer->add(piece.choice, piece.output, reply.body);
      left -= piece.output.finish != FinishReason::kNone;
    }
    if (failure) {
      request_->exchange->close();
      reply = error_reply(*failure, request_->error_shape);
      co_return co_await writer.send(reply);
    }
  }
  if (held.bytes() <= kSmallBody) {
    job.answer->end(reply.body);
  } else {  // with the large bodies: its JSON takes several times its bytes
    WorkingMemory memory(context_.options.large_work_bytes);
    const auto act = [&] {
      const WorkingIn counted(&memory);
      job.answer->end(reply.body);
    };
    try {
      co_await on_worker(context_.large_bodies, memory, act);
    } catch (const WorkingMemoryExceeded&) {
      reply = error_reply(large_answer_error(context_.options.large_work_bytes), request_->error_shape);
    }
  }
  job.answer.reset();
  co_return co_await writer.send(reply);
}

asio::awaitable<bool> Connection::stream(Job& job, ResponseWriter& writer) {
  std::vector<Piece> pieces;
  std::string events;
  for (int left = job.choices; left > 0;) {
    std::optional<ApiError> failure = co_await next_pieces(pieces);
    if (channel_->gone()) co_return false;
    events.clear();
    for (const Piece& piece : pieces) {
      if (!failure) failure = failure_of(piece.output);
      if (failure) break;
      job.answer->add(piece.choice, piece.output, events);
      left -= piece.output.finish != FinishReason::kNone;
    }
    if (!failure && !request_->reply.grow_to(events.size())) {
      failure = overloaded_error();
      events.clear();
    }
    if (failure) {
      request_->exchange->close();
      if (!writer.begun()) {  // still a status, not an event
        const Reply reply = error_reply(*failure, request_->error_shape);
        co_return co_await writer.send(reply);
      }
      request_->keep_alive = false;
      job.answer->fail(*failure, events);
      left = 0;
    } else if (left == 0) {
      job.answer->end(events);
    }
    if (events.empty()) continue;
    co_await writer.send_events(events, job.answer->stream_type(), left == 0);
    if (channel_->gone()) co_return false;
  }
  co_return request_->keep_alive;
}

// A client that leaves is noticed at the next event.
asio::awaitable<bool> Connection::show_live(LiveFeed& feed, ResponseWriter& writer) {
  const std::optional<LiveFeed::Reader> reader = feed.join();
  if (!reader) {
    const Reply refusal = error_reply(too_many_readers_error(), request_->error_shape);
    co_return co_await writer.send(refusal);
  }
  uint64_t seen = 0;
  while (!context_.stopping && !channel_->gone()) {
    const LiveFeed::Next next = feed.next(seen);
    if (next.event) {
      co_await writer.send_live(*next.event);
      seen = next.event->number();
    }
    if (feed.wants_measurement()) asio::post(context_.small_bodies, [&feed] { feed.measure(); });
    wake_.expires_at(next.again);
    co_await wake_.async_wait(kTuple);
  }
  if (writer.begun() && !channel_->gone()) co_await writer.end_live();
  co_return false;
}

}  // namespace quire
