// Pre-tokenization splits a text into words, which the model then encodes one by one.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "quire/types.h"
#include "text/tokenizer/pretokenizer_regex.h"

namespace quire {

// What happens to the matches of a pattern (Hugging Face's names).
enum class SplitBehavior : uint8_t { kIsolated, kRemoved, kMergedWithPrevious, kMergedWithNext, kContiguous };

using CharacterClass = bool (*)(char32_t);

struct SplitByRegex {
  Regex regex;
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;           // treat the text between matches as the matches
  bool groups_of_three = false;  // split each match into groups of three from its right end: 12|345|678
};
struct SplitByText {
  std::string text;
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;
};
struct SplitByClass {  // each character of the class is a match
  CharacterClass belongs;
  SplitBehavior behavior = SplitBehavior::kIsolated;
};
struct SplitWords {};  // Whitespace: \w+|[^\w\s]+
struct SplitByLength {
  size_t length;  // characters
};
// Byte-level vocabularies. The words stay bytes until `to_alphabet`, which is only needed when other steps follow.
struct AddPrefixSpace {};
struct ToAlphabet {};
struct Metaspace {
  enum class Prepend : uint8_t { kAlways, kFirst, kNever };
  std::string replacement = "\xE2\x96\x81";  // ▁
  Prepend prepend = Prepend::kAlways;
  bool split = true;
};

using PreTokenizerStep = std::variant<SplitByRegex, SplitByText, SplitByClass, SplitWords, SplitByLength,
                                      AddPrefixSpace, ToAlphabet, Metaspace>;

// One thread's memory while it encodes a text.
struct PreTokenizerScratch {
  Regex::Matcher matcher;
  std::deque<std::string> texts;  // the texts that steps created, which words point to
};

struct PreTokenizer {
  std::vector<PreTokenizerStep> steps;

  // Calls take(word) for the non-empty words of `text` (well-formed, not empty) from left to right. They point into
  // `text` or into scratch.texts. `at_start`: `text` is the start of the encoded text. Allocates memory for one word at
  // a time.
  void split(std::string_view text, bool at_start, PreTokenizerScratch& scratch,
             const std::function<void(std::string_view)>& take) const;
};

// GPT-2's pattern.
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// The steps of a pre-tokenizer that tokenizer.ggml.pre names, and the settings that llama.cpp derives from the name.
struct GgufPreTokenizer {
  PreTokenizer steps;
  bool byte_level = true;      // false: words are UTF-8 text with ▁ for spaces
  bool ignore_merges = false;  // a word that is a token is encoded as that token, whatever the merges say
  bool add_bos = false;        // unless the file says otherwise, as add_sep
  bool add_sep = false;        // SEP between two texts
};
// The pre-tokenizer of a known family whose vocabulary a file has, for files that name none. "": none is recognized.
struct GgufVocabulary;
std::string_view recognize_pretokenizer(const GgufVocabulary& vocabulary,
                                        const std::unordered_map<std::string_view, TokenId>& ids);
// One name for each pre-tokenizer that llama.cpp has.
std::vector<std::string_view> gguf_pretokenizer_names();
// Throws Error (kUnsupported) for an unknown name.
GgufPreTokenizer gguf_pretokenizer(std::string_view pre, const std::string& where);

}  // namespace quire
