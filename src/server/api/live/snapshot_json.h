// A snapshot of the engine as JSON, for the pages of the dashboard. docs/dashboard.md describes the members.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "engine/watch/snapshot.h"
#include "quire/engine.h"

namespace quire {

// What does not change while a model is served, but for the rate that is measured in the first idle moment.
struct WatchedModel {
  std::string_view name;  // under which it is served
  const ModelInfo& info;
  int max_running;            // sequences that run at a time
  double read_bandwidth = 0;  // of the machine's memory, in bytes per second; 0: unknown
  double multiply_rate = 0;   // multiply-adds per second at best; 0: unknown
};

// One line, of the steps after number `after`. after 0: all steps that the snapshot has, and the model.
std::string snapshot_json(const EngineSnapshot& snapshot, const EngineStats& stats, const WatchedModel& model,
                          uint64_t after);

}  // namespace quire
