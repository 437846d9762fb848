// Ways of allocating the KV cache for sequences of which nobody knows how long they will be, simulated step by step.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace quire {

struct SequenceLength {
  int prompt = 0, answer = 0;  // tokens; at least 1 each
};

enum class CacheAllocation {
  kContiguous,  // room for `longest` tokens from the first (Orca)
  kDoubling,    // a power of two, at least a page; the tokens are copied when it is full
  kPaged,       // pages of the engine's size, one by one: the engine's own page tables on a pool of units
};

// Token slots, added up over all steps of all sequences: a sequence takes a step for each token of its answer, and holds its
// prompt and the tokens before.
struct CacheUse {
  double used = 0, reserved = 0;

  double waste() const { return reserved > 0 ? 1 - used / reserved : 0; }  // the part that holds no token
};

struct PoolRun {
  CacheUse use;
  int64_t steps = 0;
  double running = 0;       // sequences that run together, the mean over all steps
  int64_t preemptions = 0;  // of kPaged and kDoubling: the newest sequence gives its room back and starts anew later
  int64_t recomputed = 0;   // tokens that they had computed before
  int64_t copied = 0;       // tokens that kDoubling copied
};

// All sequences wait from the beginning and are admitted in order, whenever there is room for their tokens and, unless all
// room is reserved, for a page more of each that runs. Sequences grow by a token each step. kDoubling is treated kindly: its
// room is counted, not placed, so nothing is lost between the blocks.
// longest: of all sequences, prompt and answer. pool_tokens: a multiple of the page size, at least 2 `longest`.
PoolRun run_pool(CacheAllocation allocation, std::span<const SequenceLength> lengths, int longest, int pool_tokens);

}  // namespace quire
