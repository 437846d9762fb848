// Unigram tokenization (SentencePiece, T5): the most likely of all token sequences that spell a text.
#pragma once

#include <array>
#include <optional>
#include <string_view>
#include <vector>

#include "quire/types.h"
#include "text/tokenizer/trie.h"

namespace quire {

struct UnigramModel {
  Trie tokens;                 // the tokens that a text may use
  std::vector<double> scores;  // log probability of each id
  double unknown_score = 0;    // score of a character without a token
  std::optional<TokenId> unk;
  // Unknown characters become their bytes' tokens if all of them exist (kNoToken: missing).
  bool byte_fallback = false;
  std::array<TokenId, 256> byte_tokens{};

  // Appends the tokens of `text` (well-formed) to `out`, by Viterbi over the whole text: its length × the longest
  // token's time. Adjacent unknown characters become one unknown token, or nothing if the model has none.
  void encode(std::string_view text, TokenIds& out) const;
};

}  // namespace quire
