// Tokens that are matched in a text before all other steps: special tokens and added words.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quire/types.h"
#include "text/tokenizer/trie.h"

namespace quire {

struct AddedToken {
  std::string content;
  TokenId id = kNoToken;
  bool special = false;      // matched only if special tokens are parsed
  bool normalized = false;   // matched in the normalized text
  bool single_word = false;  // not matched inside a word
  bool lstrip = false;       // the token includes the white space before it
  bool rstrip = false;       // the token includes the white space after it
};

// A part of a text: a token, or the text between tokens (kNoToken).
struct Fragment {
  std::string_view text;
  TokenId id = kNoToken;
};

class AddedTokens {
 public:
  // Which token wins where several match.
  enum class Order : uint8_t {
    kLeftmostLongest,  // Hugging Face
    kLongestFirst,     // llama.cpp: the longest token is placed first in the whole text, then the next longest
  };
  AddedTokens() = default;
  AddedTokens(std::vector<AddedToken> tokens, Order order);

  bool empty() const { return tokens_.empty(); }
  // Which special tokens are matched; the others are plain text.
  struct Specials {
    bool parse = true;
    std::span<const size_t> plain = {};  // ascending offsets of bytes that no special token may cover
    bool allow(size_t begin, size_t end) const;
  };
  // Appends the non-empty parts of `text` in order.
  void split(std::string_view text, Specials specials, std::vector<Fragment>& fragments) const;

 private:
  struct Place {
    size_t begin, end;
    int32_t token;  // index into tokens_
  };
  void find_leftmost(std::string_view text, Specials specials, std::vector<Fragment>& fragments) const;
  void find_longest(std::string_view text, Specials specials, std::vector<Fragment>& fragments) const;

  std::vector<AddedToken> tokens_;
  Order order_ = Order::kLeftmostLongest;
  Trie trie_;
};

}  // namespace quire
