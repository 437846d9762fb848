// Classes of characters from the categories of Unicode 8, the version of the tables in Hugging Face's tokenizers library.
// They differ from those of unicode.h in characters that Unicode 9 and later versions added or moved.
#pragma once

namespace quire {

bool is_unicode_8_punctuation(char32_t c);  // P*, and all ASCII punctuation and symbols
bool is_unicode_8_accent(char32_t c);       // Mn
bool is_unicode_8_control(char32_t c);      // Cc, Cf, Co, Cs

}  // namespace quire
