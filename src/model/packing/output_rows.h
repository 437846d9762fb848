// Some rows of a model's output matrix.
#pragma once

#include "base/memory.h"
#include "base/team.h"
#include "model/weights.h"
#include "quire/types.h"

namespace quire {

// A small drafter spends most of its time in the output matrix. Over the most frequent tokens alone, it drafts most of what
// it would draft anyway.
struct OutputRows {
  TokenIds ids;  // of the columns of the logits; ascending, so that the first of equal logits is the lowest id
  Linear matrix;
  LargeBuffer memory;
};
// The packed rows of these tokens: their logits have the bits that the whole matrix gives. ids: distinct, of the
// vocabulary, in any order. Throws Error (kResource).
OutputRows take_output_rows(const Weights& weights, TokenIds ids, Team& team);

}  // namespace quire
