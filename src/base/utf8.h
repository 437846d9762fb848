// UTF-8 as tokenizers read it: well-formed by Unicode table 3-7 (no surrogates, no overlong forms).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace quire {

// The character at `at`. length > 0: well-formed, that many bytes. Otherwise ill-formed: its maximal subpart is `bad`
// bytes long (replaced by one U+FFFD); `incomplete` means that the text ends in what could still become a character.
// (Unicode 3.9, "U+FFFD Substitution of Maximal Subparts")
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

// Replaces ill-formed parts by U+FFFD: one per maximal subpart (as Rust and Python do), or one per byte (llama.cpp).
std::string lossy_utf8(std::string_view text);
std::string lossy_utf8_bytewise(std::string_view text);

// The length of a character with this first byte; 1 if no character begins so.
inline size_t utf8_length(char first) {
  const auto byte = static_cast<unsigned char>(first);
  return byte < 0xC0 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

// The code point at `at` in well-formed text; advances `at` to the next.
char32_t utf8_next(std::string_view text, size_t& at);

}  // namespace quire
