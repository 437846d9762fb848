// Stages: computing units that each have some of a model's layers, and work on the same steps one after the other (pipeline
// parallelism, as in GPipe: arXiv 1811.06965). Nothing that a stage computes depends on where the layers are cut.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
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

// Rows of all parts side by side in a block of bytes: copy(where a part's row is in the block, the row, its bytes). Rows of the
// block begin every `stride` bytes. For parts in memory that the host can use.
template <class Copy>
void for_each_row(std::span<std::byte> block, size_t stride, std::span<const Rows> parts, int rows, const Copy& copy) {
  for (int row = 0; row < rows; ++row) {
    std::byte* at = block.data() + static_cast<size_t>(row) * stride;
    for (const Rows& part : parts) {
      const size_t bytes = static_cast<size_t>(part.cols) * sizeof(float);
      copy(at, part.row(row), bytes);
      at += bytes;
    }
  }
}
inline void pack_rows(std::span<const Rows> parts, int rows, std::span<std::byte> block, size_t stride) {
  for_each_row(block, stride, parts, rows,
               [](std::byte* at, const float* row, size_t bytes) { std::memcpy(at, row, bytes); });
}
inline void unpack_rows(std::span<std::byte> block, size_t stride, std::span<const Rows> parts, int rows) {
  for_each_row(block, stride, parts, rows,
               [](const std::byte* at, float* row, size_t bytes) { std::memcpy(row, at, bytes); });
}
// Bytes of a row of all parts.
inline size_t row_bytes(std::span<const Rows> parts) {
  size_t bytes = 0;
  for (const Rows& part : parts) bytes += static_cast<size_t>(part.cols) * sizeof(float);
  return bytes;
}

}  // namespace quire
