#include "ops/process_stages.h"

#include <cstring>

namespace quire {
namespace {

size_t row_bytes(std::span<const Rows> parts) {
  size_t bytes = 0;
  for (const Rows& part : parts) bytes += static_cast<size_t>(part.cols) * sizeof(float);
  return bytes;
}

// copy(a place in the block, the row of a part, bytes) for all of them, in order.
template <class Copy>
void for_each_row(std::span<std::byte> block, std::span<const Rows> parts, int rows, const Copy& copy) {
  std::byte* at = block.data();
  for (int row = 0; row < rows; ++row) {
    for (const Rows& part : parts) {
      const size_t bytes = static_cast<size_t>(part.cols) * sizeof(float);
      copy(at, part.row(row), bytes);
      at += bytes;
    }
  }
}

}  // namespace

void ProcessStages::send(std::span<const Rows> parts, int, int rows) {
  block_.resize(row_bytes(parts) * static_cast<size_t>(rows));
  for_each_row(block_, parts, rows, [](std::byte* at, float* row, size_t bytes) { std::memcpy(at, row, bytes); });
  group_.send_to(group_.rank() + 1, block_);
  sent_bytes_ += block_.size();
}

void ProcessStages::receive(std::span<const Rows> parts, int, int rows) {
  block_.resize(row_bytes(parts) * static_cast<size_t>(rows));
  group_.receive_from(group_.rank() - 1, block_);
  for_each_row(block_, parts, rows, [](std::byte* at, float* row, size_t bytes) { std::memcpy(row, at, bytes); });
}

}  // namespace quire
