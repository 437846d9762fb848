// Codes of 2, 3, 4 and 8 bits in a stream of bits, the least significant first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

namespace quire {

// Eight fields of kBits bits to eight bytes, in three steps that halve the fields of a piece.
template <int kBits>
constexpr uint64_t spread_fields(uint64_t x) {
  static_assert(kBits == 2 || kBits == 3 || kBits == 4 || kBits == 8);
  if constexpr (kBits == 2) {
    x = (x | x << 24) & 0x000000ff000000ff;
    x = (x | x << 12) & 0x000f000f000f000f;
    return (x | x << 6) & 0x0303030303030303;
  } else if constexpr (kBits == 3) {
    x = (x | x << 20) & 0x00000fff00000fff;
    x = (x | x << 10) & 0x003f003f003f003f;
    return (x | x << 5) & 0x0707070707070707;
  } else if constexpr (kBits == 4) {
    x = (x | x << 16) & 0x0000ffff0000ffff;
    x = (x | x << 8) & 0x00ff00ff00ff00ff;
    return (x | x << 4) & 0x0f0f0f0f0f0f0f0f;
  } else {
    return x;
  }
}

// Fields 8 * kAt and the seven after it, of 32-bit words.
template <int kBits, size_t kAt>
constexpr uint64_t eight_fields(const uint32_t* words) {
  constexpr size_t kFirst = kAt * 8 * kBits, kWord = kFirst / 32, kShift = kFirst % 32;
  uint64_t x = words[kWord] >> kShift;
  if constexpr (kShift + 8 * kBits > 32) x |= uint64_t{words[kWord + 1]} << (32 - kShift);
  if constexpr (kBits < 8) x &= (uint64_t{1} << 8 * kBits) - 1;
  return spread_fields<kBits>(x);
}

enum class FirstNibble : uint8_t { kLow, kHigh };

// Pairs of 4-bit codes in bytes.
template <FirstNibble kFirst>
void unpack_nibbles(const std::byte* pairs, size_t count, uint8_t* codes) {
  constexpr bool kSwap = kFirst == FirstNibble::kHigh;
  size_t i = 0;
  for (; i + 8 <= count; i += 8, pairs += 4) {
    uint32_t eight;
    std::memcpy(&eight, pairs, sizeof eight);
    if (kSwap) eight = (eight >> 4 & 0x0f0f0f0f) | (eight & 0x0f0f0f0f) << 4;
    const uint64_t bytes = spread_fields<4>(eight);
    std::memcpy(codes + i, &bytes, sizeof bytes);
  }
  for (; i < count; ++i) {
    const bool is_high = (i % 2 == 0) == kSwap;
    codes[i] = static_cast<uint8_t>(pairs[i % 8 / 2] >> (is_high ? 4 : 0) & std::byte{15});
  }
}

// Codes of 8 bits plus 128, as kI8.
inline void unpack_offset_bytes(const std::byte* offset, size_t count, uint8_t* codes) {
  constexpr uint64_t kOffsets = 0x8080808080808080;
  size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    uint64_t eight;
    std::memcpy(&eight, offset + i, sizeof eight);
    eight ^= kOffsets;
    std::memcpy(codes + i, &eight, sizeof eight);
  }
  for (; i < count; ++i) codes[i] = static_cast<uint8_t>(offset[i] ^ std::byte{128});
}

// Calls f(std::integral_constant<int, bits>()).
template <class F>
void with_bits(int bits, F f) {
  if (bits == 2) return f(std::integral_constant<int, 2>());
  if (bits == 3) return f(std::integral_constant<int, 3>());
  if (bits == 4) return f(std::integral_constant<int, 4>());
  f(std::integral_constant<int, 8>());
}

}  // namespace quire
