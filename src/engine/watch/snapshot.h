// What an engine is doing, for people who watch it. Sizes and times only: no text, no token and no tenant is in it, so it
// may be shown to whoever may use the server.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace quire {

// Times are in seconds, since the engine was made unless said otherwise.

struct SequenceSnapshot {
  enum class Phase : uint8_t {
    kWaiting,    // has not run yet
    kPreempted,  // has run, and waits for pages
    kLoading,    // pages of its prompt are being read from the page store
    kPrefill,
    kDecode,
  };

  uint64_t id = 0;       // SequenceId; never used twice
  uint64_t request = 0;  // RequestId, which the choices of a request share
  int choice = 0;
  Phase phase = Phase::kWaiting;
  int prompt_tokens = 0;
  int cached_tokens = 0;  // of the prompt, found in the prefix cache or the page store
  int computed = 0;       // tokens whose keys and values are in its pages
  int generated = 0;
  int max_new_tokens = 0;
  int units = 0;                  // of the pool that it holds, shared ones included
  int drafted = 0, accepted = 0;  // drafted tokens that were verified, and those that were right
  double submitted = 0;
  double started = -1;      // when a step first computed some of it; -1: not yet
  double first_token = -1;  // -1: not yet
};

// The part of one sequence in a step.
struct StepPart {
  uint64_t sequence = 0;  // SequenceSnapshot::id
  int first = 0;          // position of its first row
  int rows = 0;    // prompt tokens, or the last token of the answer; 0: a choice that forked from another's prompt
  int drafts = 0;  // rows of drafted tokens after these
  int tokens = 0;  // that it got
  bool decodes = false;  // it was decoding; otherwise these are rows of its prompt
};

struct StepSnapshot {
  uint64_t number = 0;  // counts all steps, from 1
  double began = 0;
  double duration = 0;
  int decode_rows = 0, prompt_rows = 0;  // drafts count as decode rows
  double bytes = 0;          // read of weights, keys, values and states; 0: not known, for steps with prompt rows
  double multiply_adds = 0;  // of its linears
  uint32_t first_part = 0, parts = 0;  // in EngineSnapshot::parts; none if they were too many to keep
};

enum class UnitUse : uint8_t {
  kFree,
  kCached,  // kept for future prompts alone
  kOwned,   // used by one sequence
  kShared,  // used by several
};

struct PoolCell {
  static constexpr uint16_t kNobody = UINT16_MAX;  // or a sequence that the snapshot does not list

  UnitUse use = UnitUse::kFree;
  uint16_t owner = kNobody;  // index in EngineSnapshot::sequences of a sequence that uses it
  uint16_t users = 0;        // sequences that use it, at most UINT16_MAX

  bool operator==(const PoolCell&) const = default;
};

// The units of the KV cache. With more than kMostCells units, a cell stands for `units_per_cell` neighbours, and shows the
// one that most sequences use.
struct PoolMap {
  static constexpr size_t kMostCells = size_t{1} << 15;

  uint32_t units = 0, units_per_cell = 1;
  std::vector<PoolCell> cells;              // the last one may stand for fewer units
  uint64_t host_pages = 0, disk_pages = 0;  // in the page store below it
};

// Pages of the prefix tree that follow one another without a fork, all with the same number of users.
struct PrefixBranch {
  int32_t parent = -1;  // index of the branch that it follows; -1: it begins a prompt
  uint32_t pages = 0;
  uint32_t users = 0;  // sequences that use it

  bool operator==(const PrefixBranch&) const = default;
};

struct PrefixShape {
  static constexpr size_t kMostBranches = 1024, kMostPages = size_t{1} << 16;

  uint64_t pages = 0;                  // of the whole tree
  std::vector<PrefixBranch> branches;  // parents before their children; the first kMostBranches and kMostPages
  bool complete = true;                // `branches` has the whole tree
};

struct EngineSnapshot {
  static constexpr size_t kMostSequences = 1024, kMostSteps = 256, kMostParts = 8192;
  static_assert(kMostSequences <= PoolCell::kNobody);

  uint64_t number = 0;                      // counts the snapshots, from 1; 0: none was taken yet
  double time = 0;                          // when it was taken
  double step_target = 0;                   // EngineOptions::tpot_target
  int running = 0, waiting = 0;             // sequences, listed or not
  std::vector<SequenceSnapshot> sequences;  // the first kMostSequences: running ones, then waiting ones
  std::vector<StepSnapshot> steps;          // the last ones, oldest first
  std::vector<StepPart> parts;              // of those steps
  PoolMap pool;
  PrefixShape prefixes;
};

}  // namespace quire
