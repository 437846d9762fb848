// Turns a token's spelling into its bytes: the decoder of a tokenizer.json.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "text/tokenizer/pretokenizer_regex.h"

namespace quire {

struct DecodeAlphabet {};   // from GPT-2's alphabet to bytes; other spellings stay
struct DecodeByteToken {};  // <0x0A>
struct DecodeReplace {
  std::string from, to;
};
struct DecodeReplaceRegex {
  Regex from;
  std::string to;
};
struct DecodeStrip {  // removes up to `left` and `right` of the character from each token
  char32_t character;
  int left, right;
};
struct DecodeMetaspace {
  std::string replacement;
  bool drop_in_first;  // drop the replacement in the first token; elsewhere it is a space
};
struct DecodeWordPiece {  // a space before every token but the first and those that continue a word
  std::string prefix;     // removed from tokens that continue a word: ##
  bool cleanup;           // no space before . ? ! , and English contractions
};
struct DecodeJoinBySpaces {};  // a space before every token but the first

using DecodeStep = std::variant<DecodeAlphabet, DecodeByteToken, DecodeReplace, DecodeReplaceRegex, DecodeStrip,
                                DecodeMetaspace, DecodeWordPiece, DecodeJoinBySpaces>;

struct DecodeRules {
  std::vector<DecodeStep> steps;
  // Removes at most strip_count of this character from the start of the whole text.
  char32_t strip_character = U' ';
  int strip_count = 0;

  // The token's bytes; `first`: it starts the text.
  std::string bytes_of(std::string_view spelling, bool first, Regex::Matcher& matcher) const;
  bool first_differs() const;
};

}  // namespace quire
