#include "text/tokenizer/byte_alphabet.h"

#include <fmt/format.h>

#include <array>

#include "base/text/utf8.h"

namespace quire {
namespace {

constexpr bool stands_for_itself(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
}

constexpr int kCharacters = 256 + 68;  // the other 68 bytes are U+0100 and up

struct Alphabet {
  std::array<char16_t, 256> character{};
  std::array<int16_t, kCharacters> byte{};
  constexpr Alphabet() {
    for (int16_t& b : byte) b = -1;
    int next = 256;
    for (int b = 0; b < 256; ++b) {
      const int c = stands_for_itself(b) ? b : next++;
      character[static_cast<size_t>(b)] = static_cast<char16_t>(c);
      byte[static_cast<size_t>(c)] = static_cast<int16_t>(b);
    }
  }
};
constexpr Alphabet kAlphabet;

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

}  // namespace

char32_t byte_to_character(unsigned char byte) { return kAlphabet.character[byte]; }

int character_to_byte(char32_t character) { return character < kCharacters ? kAlphabet.byte[character] : -1; }

std::string bytes_to_alphabet(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() * 2);
  for (char b : bytes) append_utf8(byte_to_character(static_cast<unsigned char>(b)), out);
  return out;
}

bool alphabet_to_bytes(std::string_view text, std::string& bytes) {
  bytes.clear();
  for (size_t at = 0; at < text.size();) {
    const int byte = character_to_byte(utf8_next(text, at));
    if (byte < 0) return false;
    bytes.push_back(static_cast<char>(byte));
  }
  return true;
}

int byte_token_value(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return -1;
  const int high = hex_digit(text[3]), low = hex_digit(text[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

std::string byte_token(unsigned char byte) { return fmt::format("<0x{:02X}>", byte); }

}  // namespace quire
