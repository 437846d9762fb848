// UTF-8, well-formed as in Unicode's table 3-7: no surrogates, no overlong forms.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace quire {

// What begins at a byte. length > 0: a character of that many bytes. Otherwise the next `bad` bytes are ill-formed and
// stand for one U+FFFD; `incomplete`: the text ends there, and more bytes could complete the character.
struct Utf8Step {
  char32_t character = 0;
  int length = 0;
  int bad = 0;
  bool incomplete = false;
};
Utf8Step utf8_step(std::string_view text, size_t at);

bool is_utf8(std::string_view text);
void append_utf8(char32_t character, std::string& out);

inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// Replaces ill-formed text by U+FFFD: one for each maximal part (as in Rust and Python), or one for each byte
// (llama.cpp).
std::string lossy_utf8(std::string_view text);
std::string lossy_utf8_bytewise(std::string_view text);

// The length of the character that starts with this byte; 1 if none does.
inline size_t utf8_length(char first) {
  const auto byte = static_cast<unsigned char>(first);
  return byte < 0xC0 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

// The character at `at` < text.size(), and moves `at` to the next one. utf8_next needs well-formed text; utf8_decode
// reads each ill-formed byte as U+FFFD.
char32_t utf8_next(std::string_view text, size_t& at);
char32_t utf8_decode(std::string_view text, size_t& at);

}  // namespace quire
