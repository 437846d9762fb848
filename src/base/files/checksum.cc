#include "base/files/checksum.h"

#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <vector>

namespace quire {

uint64_t checksum(std::span<const std::byte> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

std::optional<uint64_t> checksum_of(int descriptor, uint64_t begin, uint64_t size) {
  constexpr size_t kChunk = size_t{1} << 20;
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(), XXH3_freeState);
  if (!state) return std::nullopt;
  XXH3_64bits_reset(state.get());
  std::vector<std::byte> chunk(std::min<uint64_t>(kChunk, size));
  while (size > 0) {
    const ssize_t got =
        ::pread(descriptor, chunk.data(), std::min<uint64_t>(chunk.size(), size), static_cast<off_t>(begin));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return std::nullopt;
    XXH3_64bits_update(state.get(), chunk.data(), static_cast<size_t>(got));
    begin += static_cast<uint64_t>(got);
    size -= static_cast<uint64_t>(got);
  }
  return XXH3_64bits_digest(state.get());
}

}  // namespace quire
