// Shows how far a download is: a line on a terminal, or lines of a log.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "cli/terminal/progress.h"
#include "hub/download_model.h"

namespace quire {

// Writes to standard error. Without a terminal: a line when a file begins, then one every ten seconds.
class DownloadLine {
 public:
  void show(const DownloadStatus& status);
  void note(const std::string& text);

 private:
  using Clock = std::chrono::steady_clock;

  Progress line_;
  std::string stage_;
  std::optional<uint64_t> first_;  // bytes that were there when the download began
  Clock::time_point began_, due_;
};

}  // namespace quire
