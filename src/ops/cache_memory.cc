#include "ops/cache_memory.h"

#include <cassert>
#include <utility>

#include "ops/backend.h"

namespace quire {

CacheMemory::CacheMemory(Backend& backend, CacheShape shape)
    : backend_(backend),
      shape_(std::move(shape)),
      memory_(backend, layout().unit_bytes() * static_cast<size_t>(units())),
      state_memory_(backend, layout().state_bytes() * static_cast<size_t>(states())) {}

std::span<std::byte> CacheMemory::unit(int unit) const {
  assert(unit >= 0 && unit < units());
  return units_data().subspan(static_cast<size_t>(unit) * layout().unit_bytes(), layout().unit_bytes());
}

std::span<std::byte> CacheMemory::state(int slot) const {
  assert(slot >= 0 && slot < states());
  return {state_memory_.data() + static_cast<size_t>(slot) * layout().state_bytes(), layout().state_bytes()};
}

std::span<std::byte> CacheMemory::state(int index, int slot) const {
  const LayerCache& layer = layout().layers()[static_cast<size_t>(index)];
  assert(layer.kind == LayerCache::Kind::kState);
  return state(slot).subspan(layout().offset_of(index), layer.state_bytes);
}

void CacheMemory::copy(CacheCopy copy) const {
  const auto from = copy.of_state ? state(copy.from) : unit(copy.from);
  const auto to = copy.of_state ? state(copy.to) : unit(copy.to);
  backend_.copy(to.data(), from.data(), from.size());
}

std::span<std::byte> CacheMemory::bytes_of(const CachePlace& place) const {
  return (place.of_state ? state(place.index) : unit(place.index)).subspan(place.offset, place.size);
}

void CacheMemory::read(const CachePlace& place, std::span<std::byte> to) const {
  assert(to.size() == place.size);
  backend_.read(bytes_of(place).data(), to);
}

void CacheMemory::write(const CachePlace& place, std::span<const std::byte> bytes) const {
  assert(bytes.size() == place.size);
  backend_.upload(bytes, bytes_of(place).data());
}

}  // namespace quire
