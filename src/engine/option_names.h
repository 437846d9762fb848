// The names of the engine's options that have a small set of values, as flags and reports spell them.
#pragma once

#include <cstddef>
#include <string_view>

#include "engine/name_table.h"
#include "quire/engine.h"

namespace quire {

inline constexpr NameTable<SchedulerKind, 2> kSchedulerNames = {
    {{SchedulerKind::kContinuous, "continuous"}, {SchedulerKind::kStatic, "static"}}};
inline constexpr NameTable<DraftAcceptance, 2> kDraftAcceptanceNames = {
    {{DraftAcceptance::kExact, "exact"}, {DraftAcceptance::kRejection, "rejection"}}};
inline constexpr NameTable<TraceDetail, 2> kTraceDetailNames = {
    {{TraceDetail::kSteps, "steps"}, {TraceDetail::kOperations, "operations"}}};
inline constexpr NameTable<TuneMode, 3> kTuneModeNames = {
    {{TuneMode::kOff, "off"}, {TuneMode::kAuto, "auto"}, {TuneMode::kForce, "force"}}};

// The drafters have the names of kDrafters.
inline constexpr NameTable<Speculation, 2 + kDrafters.size()> kSpeculationNames = [] {
  NameTable<Speculation, 2 + kDrafters.size()> table = {{{Speculation::kOff, "off"}, {Speculation::kAuto, "auto"}}};
  for (size_t i = 0; i < kDrafters.size(); ++i) table[2 + i] = {static_cast<Speculation>(2 + i), kDrafters[i]};
  return table;
}();
static_assert(find_name(kSpeculationNames, Speculation::kNgram) == "ngram" &&
              find_name(kSpeculationNames, Speculation::kMtp) == "mtp");

constexpr std::string_view name(SchedulerKind kind) { return find_name(kSchedulerNames, kind); }
constexpr std::string_view name(DraftAcceptance acceptance) { return find_name(kDraftAcceptanceNames, acceptance); }
constexpr std::string_view name(TraceDetail detail) { return find_name(kTraceDetailNames, detail); }
constexpr std::string_view name(TuneMode mode) { return find_name(kTuneModeNames, mode); }
constexpr std::string_view name(Speculation speculation) { return find_name(kSpeculationNames, speculation); }

}  // namespace quire
