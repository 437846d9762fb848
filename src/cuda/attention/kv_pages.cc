#include "cuda/attention/kv_pages.h"

#include <cassert>

#include "kernels/head_rotation.h"
#include "kernels/kernels.h"

namespace quire::cuda {

KvPages kv_pages(const CacheMemory& cache, int index) {
  const CacheLayout& layout = cache.layout();
  const LayerCache& layer = layout.layers()[static_cast<size_t>(index)];
  assert(layer.kind == LayerCache::Kind::kKeysValues);
  const KvType type = layout.type();
  const auto bytes_of = [type](int dim) { return kPageTokens * kv_bytes(type, static_cast<size_t>(padded_head(dim))); };
  const size_t values = bytes_of(layer.key_dim);
  return {.data = Global<std::byte>(cache.units_data().data() + layout.offset_of(index)),
          .page_stride = layout.unit_bytes(),
          .head_stride = kv_head_bytes(type, layer.key_dim, layer.value_dim),
          .values_offset = static_cast<int>(values),
          .scales_offset = static_cast<int>(values + bytes_of(layer.value_dim)),
          .kv_heads = layer.kv_heads,
          .key_dim = layer.key_dim,
          .value_dim = layer.value_dim,
          .type = type};
}

HeadTurn head_turn(int dim) { return {.dim = dim, .scale = rotation_scale(rotated_block(dim))}; }

}  // namespace quire::cuda
