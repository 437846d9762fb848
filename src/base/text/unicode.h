// Classes of characters, from Unicode's general categories.
#pragma once

namespace quire {

bool is_white_space(char32_t c);  // White_Space
bool is_letter(char32_t c);       // L*
bool is_upper(char32_t c);        // Lu
bool is_lower(char32_t c);        // Ll
bool is_digit(char32_t c);        // Nd
bool is_numeric(char32_t c);      // Nd, Nl, No
bool is_punctuation(char32_t c);  // P*, and all ASCII punctuation and symbols
bool is_word(char32_t c);         // a regex's \w: letters, marks, decimal digits, connectors
bool is_mark(char32_t c);         // M*
bool is_control(char32_t c);      // C* except unassigned characters: controls, formats, private use
bool is_printable(char32_t c);    // neither C* nor Z*; the space is printable

}  // namespace quire
