#include "ops/cache_memory.h"

#include <cassert>
#include <cstring>
#include <utility>

#include "kernels/kernels.h"

namespace quire {

CacheMemory::CacheMemory(CacheShape shape)
    : shape_(std::move(shape)),
      memory_(layout().unit_bytes() * static_cast<size_t>(units())),
      state_memory_(layout().state_bytes() * static_cast<size_t>(states())) {}

KvLayer CacheMemory::layer(int index) const {
  const LayerCache& layer = layout().layers()[static_cast<size_t>(index)];
  assert(layer.kind == LayerCache::Kind::kKeysValues);
  return {.data = memory_.data() + layout().offset_of(index),
          .page_stride = layout().unit_bytes(),
          .head_stride = kv_head_bytes(layout().type(), layer.key_dim, layer.value_dim),
          .type = layout().type(),
          .kv_heads = layer.kv_heads,
          .key_dim = layer.key_dim,
          .value_dim = layer.value_dim};
}

std::span<std::byte> CacheMemory::state(int index, int slot) const {
  const LayerCache& layer = layout().layers()[static_cast<size_t>(index)];
  assert(layer.kind == LayerCache::Kind::kState);
  return state(slot).subspan(layout().offset_of(index), layer.state_bytes);
}

std::span<std::byte> CacheMemory::unit(int unit) const {
  assert(unit >= 0 && unit < units());
  return {memory_.data() + static_cast<size_t>(unit) * layout().unit_bytes(), layout().unit_bytes()};
}

void CacheMemory::copy(CacheCopy copy) const {
  const auto from = copy.of_state ? state(copy.from) : unit(copy.from);
  const auto to = copy.of_state ? state(copy.to) : unit(copy.to);
  std::memcpy(to.data(), from.data(), from.size());
}

std::span<std::byte> CacheMemory::state(int slot) const {
  assert(slot >= 0 && slot < states());
  return {state_memory_.data() + static_cast<size_t>(slot) * layout().state_bytes(), layout().state_bytes()};
}
void CacheMemory::clear_state(int slot) const { std::memset(state(slot).data(), 0, layout().state_bytes()); }

}  // namespace quire
