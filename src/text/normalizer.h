// Normalization of a text before it is split into words.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "text/tokenizer/pretokenizer_regex.h"

namespace quire {

class CharsMap;

enum class UnicodeForm : uint8_t { kNfc, kNfd, kNfkc, kNfkd };

struct NormalizeForm {
  UnicodeForm form;
};
struct Prepend {
  std::string text;  // an empty text stays empty
};
struct ReplaceText {
  std::string from, to;
};
struct ReplaceRegex {
  Regex from;
  std::string to;
};
struct Lowercase {};
struct StripSpace {
  bool left = true, right = true;
};
struct StripAccents {};  // removes combining marks
struct Nmt {};           // SentencePiece's cleaning: removes controls, turns other white space into spaces
struct BertClean {
  bool clean_text = true, handle_chinese_chars = true, strip_accents = true, lowercase = true;
};
// The same as llama.cpp does it, always with clean_text and handle_chinese_chars. To strip accents, it keeps the first
// character of each decomposition (which loses the vowels of Korean) and removes all marks.
struct BertCleanGguf {
  bool strip_accents = true, lowercase = true;
};
struct NormalizeToAlphabet {};  // bytes become GPT-2's alphabet
// SentencePiece's precompiled map, grapheme by grapheme as Hugging Face applies it.
struct Precompiled {
  std::shared_ptr<const CharsMap> map;
};
// SentencePiece's normalizer as llama.cpp runs it for unigram models: the map by longest prefix, spaces merged, ▁.
struct UnigramSpaces {
  std::shared_ptr<const CharsMap> map;  // may be null
  bool prepend_space = false, merge_spaces = false;
};

using NormalizerStep =
    std::variant<NormalizeForm, Prepend, ReplaceText, ReplaceRegex, Lowercase, StripSpace, StripAccents, Nmt, BertClean,
                 BertCleanGguf, NormalizeToAlphabet, Precompiled, UnigramSpaces>;

struct Normalizer {
  std::vector<NormalizerStep> steps;

  // `text` must be well-formed, unless no step looks at characters. Linear time, except n log n for sorting marks.
  std::string apply(std::string_view text, Regex::Matcher& matcher) const;
};

std::string normalize_form(std::string_view text, UnicodeForm form);
std::string lowercase(std::string_view text);

}  // namespace quire
