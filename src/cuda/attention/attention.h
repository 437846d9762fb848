// Attention over the pages of the cache.
#pragma once

#include <cstddef>
#include <span>

#include "cuda/attention/attention_lists.h"
#include "cuda/stream.h"
#include "ops/attention.h"
#include "ops/operation_limits.h"

namespace quire::cuda {

// Where results of splits wait to be merged. The memory is its owner's.
struct AttentionMemory {
  std::byte* data = nullptr;  // of the device, at a multiple of 256 bytes
  size_t size = 0;

  // Enough for one row of the longest sequence, and for kUsual bytes of more rows if steps have them.
  static constexpr size_t kUsual = size_t{64} << 20;
  static size_t bytes(const OperationLimits& limits);
};

// As Operations::attend(). A row's result has the same bits whatever the other rows and however rows are cut into calls.
void attend(Stream& stream, AttentionLists& lists, const AttentionSpec& spec, std::span<const AttentionSpan> spans,
            const AttentionMemory& memory);

}  // namespace quire::cuda
