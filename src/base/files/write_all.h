// Writes all of some bytes, in as many calls as the system needs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace quire {

// At the descriptor's position. Returns 0 or an error of errno; what was written before it stays.
int write_all(int descriptor, std::string_view bytes);
// At an offset of the file; the position stays.
int write_all_at(int descriptor, std::span<const std::byte> bytes, uint64_t offset);

}  // namespace quire
