#include "jinja/value/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <vector>

namespace quire::jinja {
namespace {

void append_mapped(std::string& out, char32_t c, bool upper) {
  if (c < 0x80) {
    const bool letter = upper ? (c >= 'a' && c <= 'z') : (c >= 'A' && c <= 'Z');
    out.push_back(static_cast<char>(letter ? c ^ 0x20u : c));
    return;
  }
  if (upper && c == 0xDF) {
    out += "SS";
    return;
  }
  const auto from = static_cast<utf8proc_int32_t>(c);
  append_utf8(static_cast<char32_t>(upper ? utf8proc_toupper(from) : utf8proc_tolower(from)), out);
}

}  // namespace

size_t char_count(std::string_view s) {
  size_t n = 0;
  for (size_t at = 0; at < s.size(); ++n) utf8_decode(s, at);
  return n;
}

size_t byte_of_char(std::string_view s, size_t index) {
  size_t at = 0;
  while (index-- > 0 && at < s.size()) utf8_decode(s, at);
  return at;
}

bool is_space(char32_t c) { return is_white_space(c) || (c >= 0x1C && c <= 0x1F); }

std::string to_upper(std::string_view s) {
  std::string out;
  for (size_t at = 0; at < s.size();) append_mapped(out, utf8_decode(s, at), true);
  return out;
}

std::string to_lower(std::string_view s) {
  std::string out;
  for (size_t at = 0; at < s.size();) append_mapped(out, utf8_decode(s, at), false);
  return out;
}

std::string to_folded(std::string_view s) {
  std::string out;
  for (size_t at = 0; at < s.size();) {
    const char32_t c = utf8_decode(s, at);
    if (c == 0xDF) {
      out += "ss";
    } else {
      append_mapped(out, c, false);
    }
  }
  return out;
}

std::string capitalized(std::string_view s) {
  std::string out;
  for (size_t at = 0, i = 0; at < s.size(); ++i) append_mapped(out, utf8_decode(s, at), i == 0);
  return out;
}

std::string to_title(std::string_view s) {
  std::string out;
  bool inside = false;
  for (size_t at = 0; at < s.size();) {
    const char32_t c = utf8_decode(s, at);
    append_mapped(out, c, !inside);
    inside = is_letter(c);
  }
  return out;
}

std::string_view strip(std::string_view s, const std::string_view* chars, bool left, bool right) {
  std::vector<std::string_view> sorted;  // a long list of characters, for binary search
  if (chars != nullptr && chars->size() > 32) {
    for (size_t at = 0, begin = 0; at < chars->size(); begin = at) {
      utf8_decode(*chars, at);
      sorted.push_back(chars->substr(begin, at - begin));
    }
    std::sort(sorted.begin(), sorted.end());
  }
  const auto drop = [&](std::string_view character, char32_t c) {
    if (chars == nullptr) return is_space(c);
    if (sorted.empty()) return chars->find(character) != std::string_view::npos;
    return std::binary_search(sorted.begin(), sorted.end(), character);
  };
  while (left && !s.empty()) {
    size_t end = 0;
    const char32_t c = utf8_decode(s, end);
    if (!drop(s.substr(0, end), c)) break;
    s.remove_prefix(end);
  }
  while (right && !s.empty()) {
    size_t start = s.size() - 1;
    while (start > 0 && s.size() - start < 4 && (static_cast<unsigned char>(s[start]) & 0xC0) == 0x80) --start;
    size_t at = start;
    const char32_t c = utf8_decode(s, at);
    if (at != s.size()) start = s.size() - 1;  // ill-formed UTF-8: the last byte counts as one character
    if (!drop(s.substr(start), at != s.size() ? 0xFFFD : c)) break;
    s.remove_suffix(s.size() - start);
  }
  return s;
}

}  // namespace quire::jinja
