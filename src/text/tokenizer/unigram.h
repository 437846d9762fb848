// Unigram language model tokenization (SentencePiece, T5): of all ways to write a text with tokens, the likeliest.
#pragma once

#include <array>
#include <optional>
#include <string_view>
#include <vector>

#include "quire/types.h"
#include "text/tokenizer/trie.h"

namespace quire {

struct UnigramModel {
  Trie tokens;                 // the tokens that a text may be written with
  std::vector<double> scores;  // log probability of each id
  double unknown_score = 0;    // of a character that is no token
  std::optional<TokenId> unk;
  // Unknown characters become their bytes' tokens where all of them exist (kNoToken: it does not).
  bool byte_fallback = false;
  std::array<TokenId, 256> byte_tokens{};

  // Viterbi over the whole of `text` (well-formed), appended to `out`. Time: its length times the longest token's.
  // Neighbouring unknown characters become one unknown token; nothing where there is no unknown token.
  void encode(std::string_view text, TokenIds& out) const;
};

}  // namespace quire
