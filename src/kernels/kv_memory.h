// The memory of the KV cache: pages of 16 tokens for all layers, in the layout that attention kernels read.
#pragma once

#include <cstddef>
#include <span>

#include "base/memory.h"
#include "kernels/kernels.h"

namespace quire {

struct KvShape {
  KvType type = KvType::kBf16;
  int layers = 0, kv_heads = 0, head_dim = 0;

  size_t page_bytes() const {  // of all layers
    return static_cast<size_t>(layers) * static_cast<size_t>(kv_heads) * kv_head_bytes(type, head_dim, head_dim);
  }
};

// One allocation. The folder kv/ decides which sequence owns which page.
class KvMemory {
 public:
  KvMemory(const KvShape& shape, int pages);

  KvLayer layer(int index) const;
  void copy_page(int from, int to);
  // A page of all layers as page_bytes() bytes, [layers][kv_heads][keys, values]: to store it elsewhere and restore it.
  void read_page(int page, std::span<std::byte> out) const;
  void write_page(int page, std::span<const std::byte> in);
  int pages() const { return pages_; }
  size_t bytes() const { return memory_.size(); }
  const KvShape& shape() const { return shape_; }

 private:
  KvShape shape_;
  int pages_;
  size_t layer_page_bytes_;
  LargeBuffer memory_;  // [layers][pages][kv_heads][keys, values]
};

}  // namespace quire
