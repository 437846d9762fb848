// How a connection answers a request with a task of its own.
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <exception>
#include <optional>
#include <utility>

#include "server/api/failure.h"
#include "server/http/connection.h"

namespace quire {

namespace asio = boost::asio;

// A client that leaves, and a server that stops, cancel the task. It may notice that later than the connection ends.
asio::awaitable<bool> Connection::run_task(Job job, ResponseWriter& writer) {
  constexpr std::string_view kLines = "application/x-ndjson";
  constexpr std::chrono::seconds kLookAgain{1};  // whether the server is stopping
  woken_ = false;
  std::shared_ptr<TaskRun> run;
  std::optional<Reply> reply;
  try {
    run = context_.tasks.start(std::move(job.task), [weak = weak_from_this(), executor = channel_->executor()] {
      asio::post(executor, [weak] {
        if (const auto self = weak.lock()) self->wake_up();
      });
    });
  } catch (...) {
    reply = error_reply(current_api_error(), request_->error_shape);
  }
  if (reply) co_return co_await writer.send(*reply);
  struct Ending {
    TaskRun& run;
    ~Ending() { run.cancel(std::make_exception_ptr(stopping_error())); }
  } ending{*run};
  watching_ = true;
  watch();
  TaskRun::News news;
  while (!news.over) {
    if (!woken_) {
      wake_.expires_after(kLookAgain);
      co_await wake_.async_wait(kTuple);
    }
    woken_ = false;
    if (channel_->gone() || context_.aborting) break;
    if (context_.stopping) run->cancel(std::make_exception_ptr(stopping_error()));
    news = run->take();
    if (!job.stream || news.lines.empty()) continue;
    co_await writer.send_events(news.lines, kLines, false);
  }
  watching_ = false;
  if (!news.over || channel_->gone()) co_return false;
  if (news.failure) {
    try {
      std::rethrow_exception(news.failure);
    } catch (...) {
      reply = error_reply(current_api_error(), request_->error_shape);
    }
  }
  if (!writer.begun() && (reply || !job.stream)) {
    if (!reply) reply.emplace().body = std::move(news.result);
    co_return co_await writer.send(*reply);
  }
  if (reply) request_->keep_alive = false;
  const std::string last = (reply ? reply->body : news.result) + "\n";
  co_return co_await writer.send_events(last, kLines, true);
}

}  // namespace quire
