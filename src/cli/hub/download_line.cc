#include "cli/hub/download_line.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

namespace quire {
namespace {

uint64_t in_mebibytes(uint64_t bytes) { return (bytes + (1 << 20) - 1) >> 20; }  // a small file is not 0

}  // namespace

void DownloadLine::show(const DownloadStatus& status) {
  const auto now = Clock::now();
  using Stage = DownloadStatus::Stage;
  const char* const what = status.stage == Stage::kWaiting    ? "waiting for another program that downloads "
                           : status.stage == Stage::kChecking ? "checking "
                                                              : "downloading ";
  const std::string stage = what + status.file;
  if (stage != stage_) {
    stage_ = stage;
    line_.stage(stage);
    if (!isatty(STDERR_FILENO) && status.stage != Stage::kChecking) {
      const std::string there = status.done > 0 ? fmt::format("{} of ", status.done >> 20) : "";
      note(fmt::format("{} ({}{} MiB)", stage, there, in_mebibytes(status.total)));
      due_ = now + std::chrono::seconds(10);
    }
  }
  if (status.stage != Stage::kDownloading) return line_.step_bytes(status.done, status.total);
  if (!first_ || status.done < *first_) {  // a server without ranges begins again
    first_ = status.done;
    began_ = now;
  }
  const double seconds = std::chrono::duration<double>(now - began_).count();
  const double rate = seconds > 0.5 ? static_cast<double>(status.done - *first_) / seconds : 0;
  line_.transfer(status.done, status.total, rate);
  if (isatty(STDERR_FILENO) || now < due_) return;
  due_ = now + std::chrono::seconds(10);
  note(fmt::format("{}: {} of {} MiB, {:.1f} MB/s", stage, status.done >> 20, in_mebibytes(status.total), rate / 1e6));
}

void DownloadLine::note(const std::string& text) {
  line_.clear();
  std::fprintf(stderr, "quire: %s\n", text.c_str());
}

}  // namespace quire
