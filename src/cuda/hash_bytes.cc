#include "cuda/hash_bytes.h"

#include <cstring>

namespace quire::cuda {

uint64_t hash_bytes(uint64_t hash, const void* data, size_t bytes) {
  constexpr uint64_t kPrime = 0x9E3779B97F4A7C15;
  const auto* p = static_cast<const std::byte*>(data);
  for (; bytes >= 8; bytes -= 8, p += 8) {
    uint64_t word;
    std::memcpy(&word, p, 8);
    hash = (hash ^ word) * kPrime;
    hash ^= hash >> 29;
  }
  uint64_t rest = bytes;
  for (; bytes > 0; --bytes, ++p) rest = rest << 8 | static_cast<uint64_t>(*p);
  hash = (hash ^ rest) * kPrime;
  return hash ^ hash >> 31;
}

}  // namespace quire::cuda
