// Compiles a grammar from fuzzed text and walks it, within small limits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "grammar/compile.h"
#include "grammar/matcher.h"

namespace quire::grammar {

inline Limits fuzz_limits() {
  Limits limits;
  limits.nodes = 20'000;
  limits.compile_steps = 50'000;
  limits.mask_steps = 50'000;
  limits.cache_bytes = size_t{1} << 20;
  return limits;
}

// Takes the first allowed byte at or after each byte of `choices`. The mask and advance() must agree.
inline void walk(const GrammarPtr& grammar, std::string_view choices) {
  static const std::shared_ptr<const Vocabulary> kBytes = Vocabulary::of_bytes();
  Matcher matcher(kBytes, grammar);
  std::vector<uint32_t> mask(kBytes->mask_words());
  for (const char choice : choices.substr(0, 64)) {
    if (matcher.fill_mask(mask) == 0) __builtin_trap();  // a vocabulary of all bytes has no dead ends
    unsigned byte = static_cast<unsigned char>(choice);
    for (int tries = 0; tries < 256 && (mask[byte / 32] >> (byte % 32) & 1) == 0; ++tries) byte = (byte + 1) % 256;
    const bool allowed = (mask[byte / 32] >> (byte % 32) & 1) != 0;
    if (matcher.advance(static_cast<TokenId>(byte)) != allowed) __builtin_trap();
    if (!allowed) return;
  }
}

}  // namespace quire::grammar
