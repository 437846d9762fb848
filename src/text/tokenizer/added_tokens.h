// Tokens that are found in a text before anything else happens to it: special tokens and added words.
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
  bool special = false;      // plain text when special tokens are not parsed
  bool normalized = false;   // looked for in the normalized text
  bool single_word = false;  // not inside a word
  bool lstrip = false;       // takes the white space before it along
  bool rstrip = false;       // and behind it
};

// A part of a text: a token (id) or what lies between tokens (kNoToken).
struct Fragment {
  std::string_view text;
  TokenId id = kNoToken;
};

class AddedTokens {
 public:
  // How places where several tokens match are settled.
  enum class Order : uint8_t {
    kLeftmostLongest,  // Hugging Face
    kLongestFirst,     // llama.cpp: the longest token takes its places in the whole text, then the next longest
  };
  AddedTokens() = default;
  AddedTokens(std::vector<AddedToken> tokens, Order order);

  bool empty() const { return tokens_.empty(); }
  // Which special tokens are tokens in a text; the others are plain text.
  struct Specials {
    bool parse = true;
    std::span<const size_t> plain = {};  // ascending offsets of bytes that no special token may cover
    bool allow(size_t begin, size_t end) const;
  };
  // Appends the parts of `text` in order; empty parts are left out.
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
