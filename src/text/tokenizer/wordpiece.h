// WordPiece (BERT): a word becomes the longest token that begins it, then the longest token that continues it, and so on.
#pragma once

#include <cstddef>
#include <limits>
#include <string_view>

#include "quire/types.h"
#include "text/tokenizer/trie.h"

namespace quire {

struct WordPieceModel {
  Trie tokens;  // every spelling of the vocabulary, marks included
  // The nodes after the mark of tokens that begin a word (▁ in a GGUF file, none in a tokenizer.json) and after that of
  // tokens that continue one (## in a tokenizer.json, none in a GGUF file). kNone: no token has that mark.
  int32_t beginning = 0, continuing = 0;
  TokenId unk = kNoToken;
  size_t longest_word = std::numeric_limits<size_t>::max();  // characters; longer words are unknown

  // The node after `mark`.
  int32_t node_after(std::string_view mark) const;

  // Appends the tokens of one word (well-formed) to `out`, or the unknown token if they cannot spell the whole word. Time:
  // the word's length × the longest token's.
  void encode(std::string_view word, TokenIds& out) const;
};

}  // namespace quire
