// The rows of a step, as the decoder takes them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ops/recurrent.h"
#include "ops/rows.h"
#include "quire/types.h"

namespace quire {

// One token of one sequence.
struct Row {
  TokenId token;  // kNoToken: the row brings a vector instead (Batch::vectors)
  int position;
  bool wants_logits;
  int32_t segment = 0;  // the text that it belongs to, in models that tell them apart
  bool wants_hidden = false;
};

// The rows of one sequence in a step: consecutive in the batch and in position.
struct Span {
  int row, rows;
  int position;                                  // the first row's
  std::span<const std::vector<int32_t>> tables;  // a page table per group of the cache layout; each covers the rows.
                                                 // Entries behind a window are never read.
  int state = -1;                                // slot of the sequence's state; -1: the model has none
  std::span<const StateCopy> state_copies = {};  // ascending rows
  int rope_variant = 0;                          // rope_variant() of the sequence's prompt
  int drafts = 0;                                // its last rows that may turn out wrong
  int adapter = -1;                              // number of the adapter that changes the linears; -1: none
};

// After a batch: a state as it was before the span's drafts takes in the first `rows` of them. row: of the first one, among
// all drafts of the batch.
struct StateAdvance {
  int slot, row, rows;
};

struct Batch {
  std::span<const Row> rows;
  std::span<const Span> spans;  // cover all rows, in their order
  Rows vectors = {};            // what takes the place of embeddings, in the order of the rows without a token
  // If not empty: of each row, the row of the last pass's logits whose token it has (Operations::embed_picked()); Row::token is 0.
  std::span<const int32_t> picked = {};
};

}  // namespace quire
