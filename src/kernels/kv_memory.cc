#include "kernels/kv_memory.h"

#include <cassert>
#include <cstring>

namespace quire {

KvMemory::KvMemory(const KvShape& shape, int pages)
    : shape_(shape),
      pages_(pages),
      layer_page_bytes_(static_cast<size_t>(shape.kv_heads) *
                        kv_head_bytes(shape.type, shape.head_dim, shape.head_dim)),
      memory_(shape.page_bytes() * static_cast<size_t>(pages)) {}

KvLayer KvMemory::layer(int index) const {
  return {.data = memory_.data() + static_cast<size_t>(index) * static_cast<size_t>(pages_) * layer_page_bytes_,
          .page_stride = layer_page_bytes_,
          .head_stride = kv_head_bytes(shape_.type, shape_.head_dim, shape_.head_dim),
          .type = shape_.type,
          .kv_heads = shape_.kv_heads,
          .key_dim = shape_.head_dim,
          .value_dim = shape_.head_dim};
}

void KvMemory::copy_page(int from, int to) {
  assert(from >= 0 && from < pages_ && to >= 0 && to < pages_);
  for (int i = 0; i < shape_.layers; ++i) {
    const KvLayer l = layer(i);
    std::memcpy(l.data + static_cast<size_t>(to) * l.page_stride, l.data + static_cast<size_t>(from) * l.page_stride,
                l.page_stride);
  }
}

void KvMemory::read_page(int page, std::span<std::byte> out) const {
  assert(page >= 0 && page < pages_ && out.size() == shape_.page_bytes());
  for (int i = 0; i < shape_.layers; ++i) {
    const KvLayer l = layer(i);
    std::memcpy(out.data() + static_cast<size_t>(i) * l.page_stride, l.data + static_cast<size_t>(page) * l.page_stride,
                l.page_stride);
  }
}

void KvMemory::write_page(int page, std::span<const std::byte> in) {
  assert(page >= 0 && page < pages_ && in.size() == shape_.page_bytes());
  for (int i = 0; i < shape_.layers; ++i) {
    const KvLayer l = layer(i);
    std::memcpy(l.data + static_cast<size_t>(page) * l.page_stride, in.data() + static_cast<size_t>(i) * l.page_stride,
                l.page_stride);
  }
}

}  // namespace quire
