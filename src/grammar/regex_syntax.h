// Regexes as people write them, in the syntax of ECMA-262: what JSON Schema's `pattern` and clients' regexes use.
// Look-ahead and anchors are exact. Back references, look-behind, word boundaries, flags and possessive quantifiers are
// refused. \d, \w and \s are those of ECMA-262, as is '.': no line ends.
#pragma once

#include <string>
#include <string_view>

#include "grammar/char_set.h"
#include "grammar/regex.h"

namespace quire::grammar {

enum class Anchoring : uint8_t {
  kWhole,     // the whole text matches
  kAnywhere,  // the text has a match, as `pattern` asks
};

// Throws quire::Error: "WHERE: column 7: …".
RegexId parse_regex(std::string_view pattern, Anchoring anchoring, Encoding encoding, CharEncoder& encoder,
                    RegexStore& store, const std::string& where, int max_depth);

// \d, \w, \s and their complements D, W, S; empty for another letter.
CharSet shorthand_class(char letter);

}  // namespace quire::grammar
