// The tokens that a model expects around two texts that it compares.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "quire/types.h"

namespace quire {

// [CLS] a [SEP] b [SEP]
struct PairTemplate {
  enum class Kind : uint8_t { kToken, kFirst, kSecond };
  struct Piece {
    Kind kind = Kind::kToken;
    TokenId token = kNoToken;
  };
  std::vector<Piece> pieces;  // the first text once, then the second text once; empty: there is no template
  size_t second = 0;          // the first piece of type 1; pieces.size(): all are of type 0
  std::string missing;        // without a template: what the vocabulary lacks

  void add(TokenId token) { pieces.push_back({Kind::kToken, token}); }
  void add(Kind text) { pieces.push_back({text, kNoToken}); }
  size_t tokens() const { return pieces.empty() ? 0 : pieces.size() - 2; }  // the template's own
};

// How many tokens of each text to keep.
struct PairLengths {
  size_t first, second;
};
// Shortens the longer of two texts token by token until both have `most` tokens together: Hugging Face's
// "longest_first". Of texts of equal length the first one is cut first.
PairLengths cut_pair(size_t first, size_t second, size_t most);

}  // namespace quire
