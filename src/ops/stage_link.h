// Stages: computing units that each have some of a model's layers, and work on the same steps one after the other (pipeline
// parallelism, as in GPipe: arXiv 1811.06965). Nothing that a stage computes depends on where the layers are cut.
#pragma once

#include <cstdint>
#include <span>

#include "ops/rows.h"

namespace quire {

// Layers [begin, end) of a model.
struct LayerRange {
  int begin = 0, end = 0;

  bool operator==(const LayerRange&) const = default;
};

// One stage's connection to its neighbours. Both ends of a border must send and receive the same rows, in the same order, with
// the same shapes; each from one thread at a time. Rows are in the memory of the stage's backend, and no operation uses them
// meanwhile.
class StageLink {
 public:
  virtual ~StageLink() = default;

  // The first `rows` rows of each part go to the stage after this one. first_row: the number of the first in the step, which
  // sends each row once, in ascending order. May return before the other has them. Throws RankGone if another has given up.
  virtual void send(std::span<const Rows> parts, int first_row, int rows) = 0;
  // Waits for rows of the stage before this one. What a part has between its rows, up to its stride, may be overwritten. Throws
  // RankGone if another stage has given up.
  virtual void receive(std::span<const Rows> parts, int first_row, int rows) = 0;

  uint64_t sent_bytes() const { return sent_bytes_; }  // since it exists

 protected:
  uint64_t sent_bytes_ = 0;
};

}  // namespace quire
