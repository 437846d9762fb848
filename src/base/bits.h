// Sets of numbers as bits of words, such as the tokens that a grammar allows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace quire {

// Whether bit i is set: bit i % 32 of word i / 32, as in xgrammar's and llguidance's masks.
constexpr bool has_bit(std::span<const uint32_t> words, size_t i) { return (words[i / 32] >> (i % 32) & 1) != 0; }

}  // namespace quire
