// Work of a request that takes too long for a worker, such as a download. It has a thread of its own, and tells its client
// how far it is.
#pragma once

#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace quire {

// What a task and its client know of each other. Thread-safe.
class TaskRun {
 public:
  explicit TaskRun(std::function<void()> wake) : wake_(std::move(wake)) {}

  // For the task. A line of the stream: it replaces an earlier one of the same subject that was not taken yet.
  void tell(const std::string& subject, std::string line);
  // Throws what cancel() was called with. To be called several times a second.
  void check() const;

  // For the client.
  struct News {
    std::string lines = {};  // each with a newline
    bool over = false;
    std::exception_ptr failure = nullptr;  // it ended with this
    std::string result = {};               // otherwise: what the task returned
  };
  News take();  // since the last call
  // The next check() throws this. Does not wait. The first call counts.
  void cancel(std::exception_ptr why);

 private:
  friend class TaskRunner;
  void end(std::string result, std::exception_ptr failure);
  bool is_over() const;

  mutable std::mutex mutex_;
  const std::function<void()> wake_;
  std::vector<std::pair<std::string, std::string>> lines_;  // subjects and lines, in the order in which they came
  std::exception_ptr cancelled_ = nullptr;
  News end_;
};

// Returns the last line of its stream, or the whole body without a stream. May throw.
using Task = std::function<std::string(TaskRun&)>;

// Thread-safe.
class TaskRunner {
 public:
  static constexpr size_t kMostTasks = 4;  // at a time

  ~TaskRunner() { stop(); }

  // wake: called from any thread when take() has something. Throws ApiError (503) if too many tasks run.
  std::shared_ptr<TaskRun> start(Task task, std::function<void()> wake);
  // Cancels all tasks and waits for them. Call start() no more.
  void stop();

 private:
  struct Running {
    std::shared_ptr<TaskRun> run;
    std::thread thread;
  };
  std::mutex mutex_;
  std::list<Running> running_;
};

}  // namespace quire
