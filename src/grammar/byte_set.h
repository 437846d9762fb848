// A set of bytes.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace quire::grammar {

struct ByteSet {
  std::array<uint64_t, 4> words{};

  static ByteSet range(unsigned first, unsigned last) {  // both included
    ByteSet set;
    for (unsigned byte = first; byte <= last; ++byte) set.add(byte);
    return set;
  }
  void add(unsigned byte) { words[byte / 64] |= uint64_t{1} << (byte % 64); }
  bool has(unsigned byte) const { return words[byte / 64] >> (byte % 64) & 1; }
  bool empty() const { return (words[0] | words[1] | words[2] | words[3]) == 0; }
  ByteSet& operator|=(const ByteSet& other) {
    for (size_t i = 0; i < 4; ++i) words[i] |= other.words[i];
    return *this;
  }
  ByteSet& operator&=(const ByteSet& other) {
    for (size_t i = 0; i < 4; ++i) words[i] &= other.words[i];
    return *this;
  }
  bool operator==(const ByteSet&) const = default;
};

}  // namespace quire::grammar
