// Normalization: what happens to a text before it is cut into words.
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
  std::string text;  // nothing is put before an empty text
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
struct Nmt {};           // SentencePiece's cleaning: controls go, odd spaces become spaces
struct BertClean {
  bool clean_text = true, handle_chinese_chars = true, strip_accents = true, lowercase = true;
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

using NormalizerStep = std::variant<NormalizeForm, Prepend, ReplaceText, ReplaceRegex, Lowercase, StripSpace,
                                    StripAccents, Nmt, BertClean, NormalizeToAlphabet, Precompiled, UnigramSpaces>;

struct Normalizer {
  std::vector<NormalizerStep> steps;

  // `text` is well-formed (or, where no step looks at characters, any bytes). Linear but for the sorting of combining
  // marks, which is n log n.
  std::string apply(std::string_view text, Regex::Matcher& matcher) const;
};

std::string normalize_form(std::string_view text, UnicodeForm form);
std::string lowercase(std::string_view text);

}  // namespace quire
