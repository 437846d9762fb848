// From a token's spelling in the vocabulary to the bytes it stands for: the decoder of a tokenizer.json.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "text/tokenizer/pretokenizer_regex.h"

namespace quire {

struct DecodeAlphabet {};   // GPT-2's alphabet back to bytes; a spelling outside of it stands for itself
struct DecodeByteToken {};  // <0x0A>
struct DecodeReplace {
  std::string from, to;
};
struct DecodeReplaceRegex {
  Regex from;
  std::string to;
};
struct DecodeStrip {  // off each token
  char32_t character;
  int left, right;
};
struct DecodeMetaspace {
  std::string replacement;
  bool drop_in_first;  // in the first token the replacement stands for nothing, in the others for a space
};
struct DecodeJoinBySpaces {};  // a space before every token but the first

using DecodeStep = std::variant<DecodeAlphabet, DecodeByteToken, DecodeReplace, DecodeReplaceRegex, DecodeStrip,
                                DecodeMetaspace, DecodeJoinBySpaces>;

struct DecodeRules {
  std::vector<DecodeStep> steps;
  // Off the front of the whole text: at most strip_count of this character.
  char32_t strip_character = U' ';
  int strip_count = 0;

  // What the token stands for; `first`: in front of a text.
  std::string bytes_of(std::string_view spelling, bool first, Regex::Matcher& matcher) const;
  bool first_differs() const;
};

}  // namespace quire
