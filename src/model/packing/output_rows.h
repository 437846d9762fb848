// Some rows of a model's output matrix.
#pragma once

#include "model/weights.h"
#include "ops/backend_memory.h"
#include "quire/types.h"

namespace quire {

// A small drafter spends most of its time in the output matrix. Over the most frequent tokens alone, it drafts most of what
// it would draft anyway.
struct OutputRows {
  TokenIds
      ids;  // what the columns of the logits stand for; ascending, so that the first of equal logits is the lowest id
  Linear matrix;
  BackendMemory memory;
};
// The packed rows of these tokens: their logits have the bits that the whole matrix gives. ids: distinct, of the
// vocabulary, in any order. The backend is that of the weights. Throws Error (kResource).
OutputRows take_output_rows(const Weights& weights, TokenIds ids, Backend& backend);

}  // namespace quire
