// Codes of a few bits in the 32-bit words of checkpoints.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "base/half.h"
#include "quantize/solve/integer_grid.h"

namespace quire {

// A stream of fields of `bits` bits, the least significant first, that begins with a word; the last word is filled with zeros.
// out: exactly the words that the fields need.
inline void pack_fields(std::span<const uint8_t> fields, int bits, std::span<uint32_t> out) {
  uint64_t waiting = 0;
  int filled = 0;
  size_t word = 0;
  for (const uint8_t field : fields) {
    waiting |= uint64_t{field} << filled;
    filled += bits;
    if (filled < 32) continue;
    out[word++] = static_cast<uint32_t>(waiting);
    waiting >>= 32;
    filled -= 32;
  }
  if (filled > 0) out[word++] = static_cast<uint32_t>(waiting);
  assert(word == out.size());
}

constexpr uint64_t words_for(uint64_t fields, int bits) { return (fields * static_cast<uint64_t>(bits) + 31) / 32; }

// Two 4-bit codes in a byte.
enum class FirstCode : uint8_t { kLow, kHigh };
inline std::vector<std::byte> pack_pairs(std::span<const uint8_t> codes, FirstCode first) {
  std::vector<std::byte> pairs((codes.size() + 1) / 2);
  for (size_t i = 0; i < codes.size(); ++i) {
    const bool is_high = (i % 2 == 0) == (first == FirstCode::kHigh);
    pairs[i / 2] |= static_cast<std::byte>(codes[i] << (is_high ? 4 : 0));
  }
  return pairs;
}

template <class T>
std::vector<std::byte> bytes_of(std::span<const T> values) {
  const auto bytes = std::as_bytes(values);
  return {bytes.begin(), bytes.end()};
}

// Scales as a format stores them; they have that type's precision already.
inline std::vector<std::byte> stored_scales(std::span<const float> scales, ScaleType type) {
  if (type == ScaleType::kF32) return bytes_of(scales);
  std::vector<uint16_t> halves;
  for (const float scale : scales) halves.push_back(type == ScaleType::kF16 ? f32_to_f16(scale) : f32_to_bf16(scale));
  return bytes_of(std::span<const uint16_t>(halves));
}

}  // namespace quire
