#include "ops/cache_memory.h"

#include <cassert>
#include <cstring>
#include <utility>

namespace quire {

CacheMemory::CacheMemory(CacheLayout layout, int units, int states)
    : layout_(std::move(layout)),
      units_(units),
      states_(states),
      memory_(layout_.unit_bytes() * static_cast<size_t>(units)),
      state_memory_(layout_.state_bytes() * static_cast<size_t>(states)) {}

KvLayer CacheMemory::layer(int index) const {
  const LayerCache& layer = layout_.layers()[static_cast<size_t>(index)];
  assert(layer.kind == LayerCache::Kind::kKeysValues);
  return {.data = memory_.data() + layout_.offset_of(index),
          .page_stride = layout_.unit_bytes(),
          .head_stride = kv_head_bytes(layout_.type(), layer.key_dim, layer.value_dim),
          .type = layout_.type(),
          .kv_heads = layer.kv_heads,
          .key_dim = layer.key_dim,
          .value_dim = layer.value_dim};
}

std::span<std::byte> CacheMemory::state(int index, int slot) const {
  const LayerCache& layer = layout_.layers()[static_cast<size_t>(index)];
  assert(layer.kind == LayerCache::Kind::kState);
  return state(slot).subspan(layout_.offset_of(index), layer.state_bytes);
}

std::span<std::byte> CacheMemory::unit(int unit) const {
  assert(unit >= 0 && unit < units_);
  return {memory_.data() + static_cast<size_t>(unit) * layout_.unit_bytes(), layout_.unit_bytes()};
}

void CacheMemory::copy(CacheCopy copy) {
  const auto from = copy.of_state ? state(copy.from) : unit(copy.from);
  const auto to = copy.of_state ? state(copy.to) : unit(copy.to);
  std::memcpy(to.data(), from.data(), from.size());
  if (log_) log_->push_back(copy);
}

std::span<std::byte> CacheMemory::state(int slot) const {
  assert(slot >= 0 && slot < states_);
  return {state_memory_.data() + static_cast<size_t>(slot) * layout_.state_bytes(), layout_.state_bytes()};
}
void CacheMemory::clear_state(int slot) { std::memset(state(slot).data(), 0, layout_.state_bytes()); }

}  // namespace quire
