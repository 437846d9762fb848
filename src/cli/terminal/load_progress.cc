#include "cli/terminal/load_progress.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

namespace quire {
namespace {

using Clock = std::chrono::steady_clock;

std::string text(LoadProgress::Stage stage, const std::string& model) {
  switch (stage) {
    case LoadProgress::Stage::kChecking:
      return "checking the pack cache of " + model;
    case LoadProgress::Stage::kSaving:
      return "saving the pack cache of " + model;
    case LoadProgress::Stage::kTuning:
      return "measuring kernels";
    case LoadProgress::Stage::kPacking:
      break;
  }
  return "loading " + model;
}

}  // namespace

void LoadLine::show(const LoadProgress& progress) {
  if (Clock::now() - began_ < std::chrono::milliseconds(500)) return;
  if (stage_ != progress.stage) {
    stage_ = progress.stage;
    line_.stage(text(progress.stage, model_));
  }
  if (progress.stage == LoadProgress::Stage::kTuning) return line_.step(progress.done, progress.total);
  line_.step_bytes(progress.done, progress.total);
}

void LoadLog::note(const LoadProgress& progress) {
  const auto now = Clock::now();
  if (now < due_) return;
  due_ = now + std::chrono::seconds(5);
  if (progress.stage == LoadProgress::Stage::kTuning) return spdlog::info("{}", text(progress.stage, model_));
  spdlog::info("{}: {} of {} MiB", text(progress.stage, model_), progress.done >> 20, progress.total >> 20);
}

}  // namespace quire
