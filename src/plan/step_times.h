// How long steps of a model take on a machine, from a few measured ones: a value that predicts any step.
#pragma once

#include <vector>

#include "plan/work.h"

namespace quire {

// Rows are a table, because kernels work in tiles of rows: linear between its knots, and in proportion after the last. It
// has what attention takes when nothing was computed before. What it takes beyond that is in proportion to the bytes of the
// cache that decoding reads, and to the products of a prompt's chunk.
//
// seconds = body(rows) + head(rows with logits) + slope * (amount - amount at position 0)
struct StepTimes {
  struct Knot {
    int rows = 0;
    double body = 0, head = 0;  // seconds: all but the output matrix; the output matrix
  };
  std::vector<Knot> knots;  // ascending rows, from 1; not empty
  double decode_one = 0;    // seconds per byte, in a step with one sequence, whose cache is cut among the threads
  double decode_many = 0;   // likewise in steps with several
  double prefill = 0;       // seconds per multiply-add
  ModelWork work;           // of the model that the times are of
};

double step_seconds(const StepTimes& times, const StepLoad& load);

}  // namespace quire
