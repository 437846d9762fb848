// Classes of characters, as Rust's standard library has them.
#pragma once

namespace quire {

bool is_white_space(char32_t c);  // Unicode's White_Space
bool is_numeric(char32_t c);      // Nd, Nl, No
bool is_punctuation(char32_t c);  // P*, and all of ASCII's
bool is_word(char32_t c);         // a regex's \w: letters, marks, decimal digits, connectors
bool is_mark(char32_t c);         // M*
bool is_other(char32_t c);        // C*: controls, formats, private use, unassigned

}  // namespace quire
