// Shows how far loading a model is.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "cli/terminal/progress.h"
#include "quire/types.h"

namespace quire {

// A line on the terminal. Shows nothing while loading has taken less than half a second.
class LoadLine {
 public:
  explicit LoadLine(std::string model) : model_(std::move(model)) {}
  void show(const LoadProgress& progress);

 private:
  std::string model_;
  Progress line_;
  std::optional<LoadProgress::Stage> stage_;
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
};

// Lines of the log: the first after half a second, then one every five seconds.
class LoadLog {
 public:
  explicit LoadLog(std::string model) : model_(std::move(model)) {}
  void note(const LoadProgress& progress);

 private:
  std::string model_;
  std::chrono::steady_clock::time_point due_ = std::chrono::steady_clock::now() + std::chrono::milliseconds(500);
};

}  // namespace quire
