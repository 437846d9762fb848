#include "cluster/prompt_pages.h"

#include <algorithm>
#include <cstdint>

namespace quire {
namespace {

// The finaliser of SplitMix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", 2014).
uint64_t mixed(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace

std::vector<TokenId> page_contents(std::span<const PlannedPiece> prompt, size_t request, int answer_tokens,
                                   int page_tokens) {
  std::vector<PlannedPiece> pieces(prompt.begin(), prompt.end());
  pieces.push_back({mixed(~uint64_t{request}), answer_tokens});
  std::vector<TokenId> pages;
  uint64_t content = 0;
  int filled = 0;  // of the page that is being filled
  for (const PlannedPiece& piece : pieces) {
    for (int at = 0; at < piece.tokens;) {
      const int taken = std::min(piece.tokens - at, page_tokens - filled);
      content = mixed(content ^ mixed(piece.content + static_cast<uint64_t>(at)));
      at += taken;
      filled += taken;
      if (filled < page_tokens) continue;
      pages.push_back(static_cast<TokenId>(content >> 33));  // not negative
      content = 0;
      filled = 0;
    }
  }
  return pages;
}

}  // namespace quire
