// The KV cache of one layer as kernels of the device read and write it. KvLayer (kernels/kernels.h) has the layouts of pages: the
// device keeps the same bytes as the CPU, so that persisted pages are of one kind.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/alphabet/alphabet.h"
#include "kernels/types.h"

namespace quire::cuda {

// Page p of KV head h begins at data + p * page_stride + h * head_stride, a multiple of 16 bytes.
struct KvPages {
  Global<std::byte> data;
  uint64_t page_stride, head_stride;  // bytes
  int values_offset, scales_offset;   // bytes from the beginning of a head's page
  int kv_heads;
  int key_dim, value_dim;
  KvType type;

  DEVICE Global<std::byte> head(int page, int kv_head) const {
    return data + (static_cast<uint64_t>(page) * page_stride + static_cast<uint64_t>(kv_head) * head_stride);
  }
  DEVICE int padded_key() const { return (key_dim + 15) / 16 * 16; }
  DEVICE int padded_value() const { return (value_dim + 15) / 16 * 16; }
};

}  // namespace quire::cuda
