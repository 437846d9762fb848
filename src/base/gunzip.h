// Gzip files in memory.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace quire {

bool is_gzip(std::span<const std::byte> bytes);  // starts with gzip's magic number

// The unpacked content of one gzip file (members that follow each other are joined). Throws Error with `name` when the
// data are broken or would unpack to more than `limit` bytes; never holds more than `limit` bytes.
std::string gunzip(std::span<const std::byte> bytes, const std::string& name, size_t limit = size_t{1} << 30);

}  // namespace quire
