#include "speculate/lookup/ngram_drafter.h"

#include <cassert>

namespace quire {

NgramDrafter::NgramDrafter(int min_match) : min_match_(static_cast<size_t>(min_match)) { assert(min_match >= 1); }

void NgramDrafter::append(std::span<const TokenId> tokens) {
  for (const TokenId token : tokens) text_.append(token);
}

void NgramDrafter::draft(int depth, int breadth, Drafts& out) {
  assert(depth >= 0 && breadth >= 0);
  out.clear();
  if (depth == 0) return;
  text_.matches(min_match_, static_cast<size_t>(breadth), matches_);
  const std::span<const TokenId> text = text_.text();
  for (const auto& match : matches_) {
    const size_t period = text.size() - match.end;
    out.start(static_cast<int>(match.length));
    for (size_t i = 0; i < static_cast<size_t>(depth); ++i) out.push(text[match.end + i % period]);
  }
}

}  // namespace quire
