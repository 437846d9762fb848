// The order of a forward pass and its result: plain data, which can be recorded, replayed and sent to another process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/scheduler.h"
#include "model/batch.h"
#include "ops/cache_memory.h"
#include "ops/experts.h"
#include "ops/pick.h"
#include "quire/types.h"

namespace quire {

// Changes of the cache that come before a pass: first all advances, then the copies in their order.
struct CacheChanges {
  std::vector<StateAdvance> advances;  // by drafts of the target's last pass that were right
  std::vector<CacheCopy> copies;

  bool empty() const { return advances.empty() && copies.empty(); }
  void clear() {
    advances.clear();
    copies.clear();
  }
};

// Consecutive rows of a pass that are pooled into one vector, or whose final hidden states are wanted one by one.
struct PooledRows {
  int row, rows;           // the first row in the pass, and how many; 0: only `sum` counts
  std::vector<float> sum;  // [hidden]: the sum over earlier rows' final hidden states; these rows are added in order
  bool last = false;  // no rows follow: the sum is divided by `divisor`, and goes through the model's pooled layers
  float divisor = 1;
  bool apart = false;  // the result has a vector for each row [rows, hidden]; `sum` is empty
};

struct ForwardInput {
  CacheChanges changes;
  bool by_drafter = false;  // the drafter computes, not the target
  std::vector<Row> rows;
  std::vector<Span> spans;            // their page tables stay as they are until the pass has ended
  std::vector<SequenceId> sequences;  // the sequence of each span; empty for drafters
  std::vector<PooledRows> pooled;
  // Which logits of each row the host needs; nullopt: the whole row. Empty: all rows whole. Only if Executor::picks_logits().
  std::vector<std::optional<Pick>> picks;
  // Batch::picked: for a pass that is launched before the last one has ended. Only if Executor::runs_ahead().
  std::vector<int32_t> picked;

  // For drafters that read hidden states: of each row, the row among those that the target's last pass kept
  // (Row::wants_hidden), or those that the drafter's own last pass predicted.
  std::vector<int32_t> features;
  bool predicted = false;
  int heads = 0;  // Medusa's heads: each gives logits for each row

  // All but what drafters use. Keeps the memory.
  void clear() {
    changes.clear();
    rows.clear();
    spans.clear();
    sequences.clear();
    pooled.clear();
    picks.clear();
    picked.clear();
  }
};

// Valid until the next order.
struct ForwardOutput {
  std::span<float> logits;  // [rows that want them][columns], in row order; the receiver may change them
  // With ForwardInput::picks: the picked logits of each row; nullopt: the whole row is in `logits`, where other rows are undefined.
  // Without whole rows `logits` is empty. If the next pass was launched before this one had ended, it has overwritten them: rows that are
  // needed whole are then lost.
  std::vector<std::optional<Picked>> picked;
  uint64_t logits_bytes = 0;               // of logits that were brought from a device to the host
  std::vector<std::vector<float>> pooled;  // the new sums, or the results
  uint64_t expert_bytes = 0;               // weights of experts that the pass has read in memory
  ExpertReads expert_reads;                // from their file, since the last pass of the target
};

}  // namespace quire
