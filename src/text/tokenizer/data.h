// The data of a Tokenizer. from_hf.cc or from_gguf.cc builds it; then it is immutable.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "text/detokenizer_steps.h"
#include "text/normalizer.h"
#include "text/tokenizer/added_tokens.h"
#include "text/tokenizer/bpe.h"
#include "text/tokenizer/pair.h"
#include "text/tokenizer/pretokenizer.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/trie.h"
#include "text/tokenizer/unigram.h"
#include "text/tokenizer/wordpiece.h"

namespace quire {

// Strings in one block of memory. Views of them stay valid once all are added.
class StringTable {
 public:
  void add(std::string_view text) {
    memory_ += text;
    ends_.push_back(memory_.size());
  }
  size_t size() const { return ends_.size() - 1; }
  size_t bytes() const { return memory_.size(); }  // size of all texts
  std::string_view operator[](size_t i) const {
    return std::string_view(memory_).substr(ends_[i], ends_[i + 1] - ends_[i]);
  }

 private:
  std::string memory_;
  std::vector<size_t> ends_{0};
};

struct TokenizerData {
  std::string name;
  StringTable texts;                                      // each id's spelling; "" for unused ids
  StringTable bytes;                                      // its bytes inside a text
  std::unordered_map<std::string_view, TokenId> by_text;  // views into texts
  std::vector<TokenKind> kinds;
  std::vector<bool> special;
  Trie special_texts;  // spellings of the special tokens

  // Encoding, in this order.
  enum class IllFormed : uint8_t { kReplaceParts, kReplaceBytes, kKeep };
  IllFormed ill_formed = IllFormed::kReplaceParts;
  AddedTokens added;             // matched in the text itself
  Normalizer normalizer;         // applied to the parts between them
  AddedTokens added_normalized;  // matched in the normalized parts
  PreTokenizer pretokenizer;
  std::variant<BpeModel, UnigramModel, WordPieceModel> model;
  TokenIds prefix, suffix;  // add_special
  PairTemplate pair;

  DecodeRules decoding;
  // Added tokens that the normalizer changes are decoded from the normalized text (Llama 2: "▁<s>").
  std::unordered_map<TokenId, std::string> normalized_texts;
  StringTable extra_symbols, whole_words;  // further texts that BpeModel points to

  std::optional<TokenId> bos, eos, unk, pad, eot, eom;
  FimTokens fim;
  TokenIds end_of_generation;  // ascending
  std::vector<std::string> warnings;

  std::string_view text_to_decode(TokenId id) const {
    const auto found = normalized_texts.find(id);
    return found == normalized_texts.end() ? texts[static_cast<size_t>(id)] : std::string_view(found->second);
  }
  std::string_view model_kind() const {
    constexpr std::string_view kKinds[] = {"BPE", "unigram", "WordPiece"};
    return kKinds[model.index()];
  }
  bool contains(TokenId id) const { return id >= 0 && static_cast<size_t>(id) < kinds.size(); }
};

}  // namespace quire
