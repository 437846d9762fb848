// Checksums that tell whether bytes of a file are those that were written. They guard against damage, not against malice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace quire {

// XXH3-64.
uint64_t checksum(std::span<const std::byte> bytes);
// Of bytes [begin, begin + size) of an open file; nothing if it is shorter or cannot be read.
std::optional<uint64_t> checksum_of(int descriptor, uint64_t begin, uint64_t size);

}  // namespace quire
