// Where the last tokens of a growing text occurred before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "quire/types.h"

namespace quire {

// The suffix automaton of a text (Blumer et al., "The smallest automaton recognizing the subwords of a text", 1985).
// A state is a set of substrings that end at the same positions; its link leads to the longest of their suffixes that
// also ends elsewhere. So the link of the whole text's state is the longest suffix that occurs earlier, and the links
// after it are the shorter suffixes with more occurrences.
//
// append() takes amortized constant time. Memory: at most 84 bytes a token (two states of 24, one further edge of 16
// and 16 of hash table, 4 of text); chats need about 55. Vectors may hold twice that unless reserve() was called.
class SuffixAutomaton {
 public:
  // text[end - length, end) equals the last `length` tokens of the text, and end < text.size().
  struct Match {
    size_t length = 0, end = 0;
    bool operator==(const Match&) const = default;
  };
  // States whose latest end each append() updates: the kNested longest suffixes that differ in their occurrences.
  // Ordinary texts have about ten. Long runs of one token have more; of their shorter suffixes, an occurrence that is
  // not the latest may be found.
  static constexpr size_t kNested = 64;

  SuffixAutomaton();
  // Allocates memory for a text of this many tokens.
  void reserve(size_t tokens);
  void append(TokenId token);

  std::span<const TokenId> text() const { return text_; }
  // The longest suffix that occurs earlier, at its latest earlier occurrence. Length 0: none.
  Match longest() const;
  // Replaces `out` by at most `most` matches of at least `min_length` (>= 1) tokens, followed by different tokens:
  // longest first; of the same length, latest first. Considers at most kEdges tokens after each suffix.
  void matches(size_t min_length, size_t most, std::vector<Match>& out) const;
  static constexpr size_t kEdges = 64;

  size_t bytes() const;  // allocated

 private:
  using Index = uint32_t;
  static constexpr Index kNone = ~Index{0};

  struct State {
    Index link = kNone;
    uint32_t length = 0;  // length of the longest substring
    uint32_t end = 0;     // where the latest occurrence ends
    // The first edge is kept here, as most states have no other.
    TokenId token = kNoToken;
    Index to = kNone;
    Index more = kNone;  // its further edges
  };
  struct Edge {
    Index from;
    TokenId token;
    Index to;
    Index next;  // the next edge of the same state
  };
  struct Nested {
    Index state;
    uint32_t end;  // where the latest occurrence before that at the end of the text ends
  };

  Index* find(Index state, TokenId token);
  void add(Index state, TokenId token, Index to);
  Index clone(Index state, uint32_t length);
  size_t slot_of(Index state, TokenId token) const;
  void grow_table(size_t slots);

  TokenIds text_;
  std::vector<State> states_;   // the first is the empty string
  std::vector<Edge> edges_;     // without those inside states
  std::vector<Index> table_;    // open addressing: (state, token) to edge; a power of two, at most half full
  std::vector<Nested> nested_;  // the suffixes that occur earlier, longest first
  Index last_ = 0;              // the whole text
};

}  // namespace quire
