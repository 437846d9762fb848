#include "server/api/task.h"

#include <algorithm>

#include "server/api/failure.h"

namespace quire {

void TaskRun::tell(const std::string& subject, std::string line) {
  constexpr size_t kMostLines = 1024;  // of a client that does not read; a repository has fewer files
  const std::lock_guard lock(mutex_);
  const bool first = lines_.empty();
  const auto same = std::ranges::find(lines_, subject, &std::pair<std::string, std::string>::first);
  if (same != lines_.end()) {
    same->second = std::move(line);
  } else if (lines_.size() < kMostLines) {
    lines_.emplace_back(subject, std::move(line));
  }
  if (first) wake_();
}

void TaskRun::check() const {
  const std::lock_guard lock(mutex_);
  if (cancelled_) std::rethrow_exception(cancelled_);
}

TaskRun::News TaskRun::take() {
  const std::lock_guard lock(mutex_);
  News news = end_;
  for (const auto& [subject, line] : lines_) news.lines += line + "\n";
  lines_.clear();
  return news;
}

void TaskRun::cancel(std::exception_ptr why) {
  const std::lock_guard lock(mutex_);
  if (!cancelled_) cancelled_ = std::move(why);
}

void TaskRun::end(std::string result, std::exception_ptr failure) {
  const std::lock_guard lock(mutex_);
  end_ = {.over = true, .failure = std::move(failure), .result = std::move(result)};
  wake_();
}

bool TaskRun::is_over() const {
  const std::lock_guard lock(mutex_);
  return end_.over;
}

std::shared_ptr<TaskRun> TaskRunner::start(Task task, std::function<void()> wake) {
  const std::lock_guard lock(mutex_);
  for (auto at = running_.begin(); at != running_.end();) {
    if (!at->run->is_over()) {
      ++at;
      continue;
    }
    at->thread.join();
    at = running_.erase(at);
  }
  if (running_.size() >= kMostTasks) {
    ApiError error(503, "the server downloads as many models as it may at a time; try again later", "server_error", {},
                   "overloaded");
    error.retry_after = 30;
    throw error;
  }
  auto run = std::make_shared<TaskRun>(std::move(wake));
  std::thread thread([run, task = std::move(task)] {
    try {
      run->end(task(*run), nullptr);
    } catch (...) {
      run->end({}, std::current_exception());
    }
  });
  running_.push_back({run, std::move(thread)});
  return run;
}

void TaskRunner::stop() {
  const std::lock_guard lock(mutex_);
  for (const Running& running : running_) running.run->cancel(std::make_exception_ptr(stopping_error()));
  for (Running& running : running_) running.thread.join();
  running_.clear();
}

}  // namespace quire
