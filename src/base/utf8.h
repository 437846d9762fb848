// UTF-8 as the tokenizers read it: well-formed per Unicode table 3-7 (no surrogates, no overlong forms).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace quire {

// How the bytes at `at` begin. length > 0: a character of that many bytes. Else an ill-formed sequence: `bad` bytes
// form its maximal part (one U+FFFD), and `incomplete` says that the text ends inside what may still become a
// character.
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

// Ill-formed parts become U+FFFD: one for each maximal part (as Rust and Python do), or one for each byte (llama.cpp).
std::string lossy_utf8(std::string_view text);
std::string lossy_utf8_bytewise(std::string_view text);

// The bytes of a character that begins so; 1 where none begins so.
inline size_t utf8_length(char first) {
  const auto byte = static_cast<unsigned char>(first);
  return byte < 0xC0 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

// The code point at `at` in well-formed text, and where the next begins.
char32_t utf8_next(std::string_view text, size_t& at);

}  // namespace quire
