// Gzip files in memory.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace quire {

bool is_gzip(std::span<const std::byte> bytes);  // starts with gzip's magic number

// The unpacked content of one gzip file; consecutive members are joined. Throws Error naming `name` if the data is
// broken or unpacks to more than `limit` bytes, and never allocates more than that.
std::string gunzip(std::span<const std::byte> bytes, const std::string& name, size_t limit = size_t{1} << 30);

}  // namespace quire
