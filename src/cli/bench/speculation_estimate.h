// What theory expects of speculative decoding, from counts of the engine and measured costs of steps.
#pragma once

#include <span>
#include <vector>

#include "quire/engine.h"

namespace quire {

// Expected tokens of a step that verifies k drafted tokens, each right with chance a if those before it are:
//   1 + a + ... + a^k = (1 - a^(k+1)) / (1 - a)       (Leviathan et al. 2023)
double tokens_of_step(double a, int k);

// The a of this model under which the drafts seen are most likely: right tokens over right tokens and first wrong ones.
double token_acceptance(const DrafterStats& drafts);

// Mean tokens of a draft.
double mean_depth(const DrafterStats& drafts);

constexpr double ratio(double a, double b) { return b > 0 ? a / b : 0; }

// Seconds of decode steps without speculation, by rows; linear between the measured ones and after the last.
struct RowCost {
  int rows;
  double seconds;
};
double seconds_at(std::span<const RowCost> costs /* by rows; not empty */, int rows);

// What an engine did between two readings of its counters. Only steps without rows of prompts count.
struct DecodeCounts {
  double seconds = 0;  // by the clock, less those of steps with rows of prompts
  double verify_seconds = 0;
  uint64_t tokens = 0, sequences = 0, steps = 0, verify_steps = 0;  // sequences: added up over the steps
  std::array<uint64_t, 1 + EngineStats::kMostCountedRows> steps_by_rows{};
  DrafterStats drafts;  // sums over all drafters, also in steps with rows of prompts

  // `elapsed`: seconds by the clock.
  static DecodeCounts between(const EngineStats& before, const EngineStats& after, double elapsed);
  void add(const DecodeCounts& more);
  double tokens_per_step() const;  // in one sequence
  double tokens_per_second() const;
};

struct SpeculationEstimate {
  double acceptance = 0;                  // a
  double depth = 0;                       // mean k of the steps that verify
  double tokens_per_step = 0;             // by the formula above, steps without drafts included
  double tokens_per_second = 0;           // from them and the costs of steps
  double tokens_per_second_by_depth = 0;  // from the tokens that were right, depth by depth, and the costs of steps
};

// Costs count relative to each other, so that a machine whose speed has changed since does not matter: the steps of
// `off` set the scale.
SpeculationEstimate estimate(const DecodeCounts& off, const DecodeCounts& on, std::span<const RowCost> costs);

}  // namespace quire
