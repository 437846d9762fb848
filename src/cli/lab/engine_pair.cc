#include "cli/lab/engine_pair.h"

#include "engine/runtime.h"

namespace quire {
namespace {

const EngineOptions& announced(const EngineOptions& options, Progress& progress) {
  progress.stage("loading " + options.model);
  return options;
}

}  // namespace

EnginePair::EnginePair(const EngineOptions& on, const EngineOptions& off, Progress& progress)
    : runtime_(make_runtime(on)), on_(announced(on, progress), runtime_), off_(off, runtime_) {}

}  // namespace quire
