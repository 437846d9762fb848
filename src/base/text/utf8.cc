#include "base/text/utf8.h"

#include <cstring>

namespace quire {

Utf8Step utf8_step(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return {.character = first, .length = 1};
  int length = 0;
  unsigned char low = 0x80, high = 0xBF;  // the second byte's range
  if (first >= 0xC2 && first <= 0xDF)
    length = 2;
  else if (first >= 0xE0 && first <= 0xEF)
    length = 3;
  else if (first >= 0xF0 && first <= 0xF4)
    length = 4;
  else
    return {.bad = 1};
  if (first == 0xE0) low = 0xA0;
  if (first == 0xED) high = 0x9F;
  if (first == 0xF0) low = 0x90;
  if (first == 0xF4) high = 0x8F;
  char32_t character = first & (0x7Fu >> length);
  for (int i = 1; i < length; ++i) {
    if (at + static_cast<size_t>(i) >= text.size()) return {.bad = i, .incomplete = true};
    const unsigned char next = byte(static_cast<size_t>(i));
    if (next < low || next > high) return {.bad = i};
    low = 0x80;
    high = 0xBF;
    character = (character << 6) | (next & 0x3Fu);
  }
  return {.character = character, .length = length};
}

bool is_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    uint64_t eight;
    if (at + sizeof eight <= text.size()) {
      std::memcpy(&eight, text.data() + at, sizeof eight);
      if ((eight & 0x8080808080808080u) == 0) {
        at += sizeof eight;
        continue;
      }
    }
    const Utf8Step step = utf8_step(text, at);
    if (step.length == 0) return false;
    at += static_cast<size_t>(step.length);
  }
  return true;
}

void append_utf8(char32_t c, std::string& out) {
  const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | (c >> 6)), put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | (c >> 12)), put(0x80 | ((c >> 6) & 0x3F)), put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | (c >> 18)), put(0x80 | ((c >> 12) & 0x3F)), put(0x80 | ((c >> 6) & 0x3F)), put(0x80 | (c & 0x3F));
  }
}

namespace {
std::string lossy(std::string_view text, bool bytewise) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = utf8_step(text, at);
    if (step.length > 0) {
      out.append(text, at, static_cast<size_t>(step.length));
      at += static_cast<size_t>(step.length);
    } else {
      out += kReplacement;
      at += bytewise ? 1 : static_cast<size_t>(step.bad);
    }
  }
  return out;
}
}  // namespace

std::string lossy_utf8(std::string_view text) { return lossy(text, false); }
std::string lossy_utf8_bytewise(std::string_view text) { return lossy(text, true); }

char32_t utf8_decode(std::string_view text, size_t& at) {
  if (static_cast<unsigned char>(text[at]) < 0x80) return static_cast<unsigned char>(text[at++]);
  const Utf8Step step = utf8_step(text, at);
  at += step.length > 0 ? static_cast<size_t>(step.length) : 1;
  return step.length > 0 ? step.character : 0xFFFD;
}

char32_t utf8_next(std::string_view text, size_t& at) {
  const auto byte = [&](size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(text[at + i])); };
  const char32_t first = byte(0);
  if (first < 0x80) {
    ++at;
    return first;
  }
  char32_t character;
  if (first < 0xE0) {
    character = ((first & 0x1F) << 6) | (byte(1) & 0x3F);
    at += 2;
  } else if (first < 0xF0) {
    character = ((first & 0x0F) << 12) | ((byte(1) & 0x3F) << 6) | (byte(2) & 0x3F);
    at += 3;
  } else {
    character = ((first & 0x07) << 18) | ((byte(1) & 0x3F) << 12) | ((byte(2) & 0x3F) << 6) | (byte(3) & 0x3F);
    at += 4;
  }
  return character;
}

}  // namespace quire
