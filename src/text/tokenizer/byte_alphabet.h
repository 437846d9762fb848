// GPT-2's alphabet: each of the 256 bytes as one printable character ("Ġ" for a space), the spelling of byte-level
// vocabularies.
#pragma once

#include <string>
#include <string_view>

namespace quire {

char32_t byte_to_character(unsigned char byte);
int character_to_byte(char32_t character);  // -1: not in the alphabet

std::string bytes_to_alphabet(std::string_view bytes);
// False if a character is not in the alphabet.
bool alphabet_to_bytes(std::string_view text, std::string& bytes);

// "<0x0A>" to 10; -1 for anything else.
int byte_token_value(std::string_view text);
std::string byte_token(unsigned char byte);  // "<0x0A>"

}  // namespace quire
