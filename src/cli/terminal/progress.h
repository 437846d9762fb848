// One line on standard error that shows how far a long task is.
#pragma once

#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

namespace quire {

// The line is rewritten in place and erased when the object dies, so results and errors stand alone. Shows nothing
// unless `descriptor` is a terminal. Repaints at most ten times a second. Has no thread of its own: a stage that
// reports nothing shows only its name.
class Progress {
  using Clock = std::chrono::steady_clock;

 public:
  explicit Progress(int descriptor = STDERR_FILENO);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Begins a stage and shows its name: "loading smollm2 ...".
  void stage(std::string name);
  // "measuring: 3 of 40, 25 s left; NOTE". The time left assumes that steps of a stage take equally long.
  void step(size_t done, size_t total, std::string_view note = {});
  // The same in bytes: "loading smollm2: 30 of 92 MiB, 2 s left".
  void step_bytes(size_t done, size_t total);
  // The same for a download, by its rate in bytes a second: "downloading x: 30 of 92 MiB, 12.3 MB/s, 5 s left".
  void transfer(size_t done, size_t total, double rate);
  // Erases the line, for other output on the terminal.
  void clear();

  // A stage within another, which goes on when the object dies; its time is part of the other's.
  class Inner {
   public:
    Inner(Progress& progress, std::string name)
        : progress_(progress), stage_(progress.stage_), began_(progress.began_) {
      progress.stage(std::move(name));
    }
    ~Inner() {
      progress_.stage_ = stage_;
      progress_.began_ = began_;
    }
    Inner(const Inner&) = delete;
    Inner& operator=(const Inner&) = delete;

   private:
    Progress& progress_;
    const std::string stage_;
    const Clock::time_point began_;
  };

 private:
  void paint(std::string line);
  bool is_due() const;
  std::string time_left(size_t done, size_t total) const;  // ", 2 s left", or nothing

  const int descriptor_;
  const bool terminal_;
  bool shown_ = false;
  std::string stage_;
  Clock::time_point began_, painted_;
};

}  // namespace quire
