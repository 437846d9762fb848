// The tokens of a model as the grammar engine sees them: a trie of their bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quire/types.h"

namespace quire::grammar {

// An added token. A grammar item with this spelling matches it, and in a grammar that has such an item nothing else does.
struct SpecialToken {
  TokenId id = kNoToken;
  std::string spelling;  // "<tool_call>"
  bool text = false;     // it may stand for its spelling in grammars that have no such item
};

// A byte trie in depth-first order: to skip a subtree is to jump to its `end`.
struct TrieNode {
  TokenId token;   // whose bytes end here; kNoToken: none
  uint32_t end;    // index after the last node of the subtree
  uint16_t depth;  // 1 for the first byte of a token
  uint8_t byte;
};
using Trie = std::vector<TrieNode>;

// Immutable; made once per model and shared by all grammars and threads.
class Vocabulary {
 public:
  // bytes[id]: what token id adds to a text; empty: the token is never allowed. End tokens, and special ones that are not
  // text, must have no bytes here or are taken out. end: the tokens that end an answer.
  static std::shared_ptr<const Vocabulary> build(std::span<const std::string_view> bytes,
                                                 std::span<const SpecialToken> special, std::span<const TokenId> end);
  // For tests and checks without a model: 256 tokens of one byte, and one end token with id 256.
  static std::shared_ptr<const Vocabulary> of_bytes();

  size_t size() const { return bytes_.size(); }             // ids are 0 … size()-1
  size_t mask_words() const { return (size() + 31) / 32; }  // size of a mask
  std::string_view bytes(TokenId id) const { return bytes_[static_cast<size_t>(id)]; }
  std::span<const TokenId> end_tokens() const { return end_; }
  std::optional<TokenId> find_special(std::string_view spelling) const;
  bool is_special(TokenId id) const { return special_ids_[static_cast<size_t>(id)]; }  // never text

  // The next token with the same bytes, or kNoToken. The trie holds only the first of them.
  TokenId twin(TokenId id) const { return twins_[static_cast<size_t>(id)]; }

  // All tokens.
  const Trie& trie() const { return trie_; }

  // Plain tokens consist of whole characters that stand for themselves in a JSON string: none below U+0020, no '"', no
  // '\'. A slice has the plain tokens of at most max_characters; `others` is the trie of all other tokens. Where every
  // plain text is allowed, its mask is copied instead of walking the trie.
  struct Slice {
    size_t max_characters;
    std::vector<uint32_t> mask;
    Trie others;
  };
  std::span<const Slice> slices() const { return slices_; }  // ascending; the last one has all plain tokens
  // The plain tokens; empty if there are none.
  std::span<const uint32_t> plain_tokens() const {
    return slices_.empty() ? std::span<const uint32_t>() : slices_.back().mask;
  }

 private:
  std::vector<std::string> bytes_;
  std::vector<TokenId> end_, twins_;
  std::vector<SpecialToken> special_;
  std::vector<bool> special_ids_;
  Trie trie_;
  std::vector<Slice> slices_;
};

}  // namespace quire::grammar
