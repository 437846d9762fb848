// Drafts from a text that the user provides, such as a code base or typical answers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "quire/types.h"
#include "speculate/lookup/drafts.h"

namespace quire {

// The suffix array of a token text: all positions, sorted by the tokens that follow. The occurrences of a suffix of a
// sequence are a range of it, found by binary search, and so are those of the suffix with any continuation.
// Immutable, so all sequences and threads may share it.
//
// Memory: 8 bytes a token; 20 while the constructor runs, which takes O(n log n) time (10 million tokens: 4 s).
class Corpus {
 public:
  static constexpr size_t kLongestMatch = 32;

  // Documents are separated by kNoToken; matches and drafts do not extend over it. Throws Error (kInvalid) for 2^31
  // tokens or more.
  explicit Corpus(TokenIds text);

  size_t size() const { return text_.size(); }
  size_t bytes() const;  // allocated

  // Replaces `out` by at most `breadth` drafts of at most `depth` tokens. The last tokens of `context` are looked up:
  // the longest suffix that occurs, of min_match (>= 1) to kLongestMatch tokens, and then shorter ones. Each token of
  // a draft is the one that most often follows the match and the draft so far; the drafts of one match are sorted by
  // how often their first tokens follow it. How often is counted in at most kVotes occurrences, evenly spaced in the
  // suffix array. Allocates nothing but in `out`.
  void draft(std::span<const TokenId> context, int min_match, int depth, int breadth, Drafts& out) const;
  static constexpr size_t kVotes = 64;

 private:
  struct Range {  // a part of order_
    size_t begin, end;
    size_t size() const { return end - begin; }
  };
  struct Vote {
    TokenId token;
    int count;
  };
  using Votes = std::array<Vote, kVotes>;

  // Suffixes are sorted by their first kSorted tokens, then by position.
  static constexpr size_t kSorted = 64;

  Range find(std::span<const TokenId> tokens) const;
  // The part of a range of suffixes with equal first `length` tokens where this token follows.
  Range narrow(Range range, size_t length, TokenId token) const;
  // The tokens after the first `length` tokens of the suffixes, most votes first. Returns how many.
  size_t vote(Range range, size_t length, Votes& votes) const;
  // The token `length` after the beginning of a suffix; kNoToken at the end of the text.
  TokenId token_at(size_t suffix, size_t length) const;

  TokenIds text_;
  std::vector<uint32_t> order_;
};

}  // namespace quire
