#include "jinja/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <vector>

namespace quire::jinja {
namespace {

int category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

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
  append_utf8(out, static_cast<char32_t>(upper ? utf8proc_toupper(from) : utf8proc_tolower(from)));
}

}  // namespace

char32_t decode_at(std::string_view s, size_t& at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(s[i]); };
  const unsigned first = byte(at);
  if (first < 0x80) {
    ++at;
    return first;
  }
  const size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  char32_t c = first & (0xFFu >> (length + 1));
  bool good = first >= 0xC2 && first <= 0xF4 && at + length <= s.size();
  for (size_t i = 1; good && i < length; ++i) {
    good = (byte(at + i) & 0xC0) == 0x80;
    c = (c << 6) | (byte(at + i) & 0x3F);
  }
  good = good && !(length == 3 && (c < 0x800 || (c >= 0xD800 && c < 0xE000))) &&
         !(length == 4 && (c < 0x10000 || c > 0x10FFFF));
  at += good ? length : 1;
  return good ? c : 0xFFFD;
}

void append_utf8(std::string& out, char32_t c) {
  if (c < 0x80) {
    out.push_back(static_cast<char>(c));
  } else if (c < 0x800) {
    out.push_back(static_cast<char>(0xC0 | (c >> 6)));
    out.push_back(static_cast<char>(0x80 | (c & 0x3F)));
  } else if (c < 0x10000) {
    out.push_back(static_cast<char>(0xE0 | (c >> 12)));
    out.push_back(static_cast<char>(0x80 | ((c >> 6) & 0x3F)));
    out.push_back(static_cast<char>(0x80 | (c & 0x3F)));
  } else {
    out.push_back(static_cast<char>(0xF0 | (c >> 18)));
    out.push_back(static_cast<char>(0x80 | ((c >> 12) & 0x3F)));
    out.push_back(static_cast<char>(0x80 | ((c >> 6) & 0x3F)));
    out.push_back(static_cast<char>(0x80 | (c & 0x3F)));
  }
}

size_t char_count(std::string_view s) {
  size_t n = 0;
  for (size_t at = 0; at < s.size(); ++n) decode_at(s, at);
  return n;
}

size_t byte_of_char(std::string_view s, size_t index) {
  size_t at = 0;
  while (index-- > 0 && at < s.size()) decode_at(s, at);
  return at;
}

bool is_valid_utf8(std::string_view s) {
  for (size_t at = 0; at < s.size();) {
    const size_t start = at;
    if (decode_at(s, at) == 0xFFFD && at == start + 1) return false;
  }
  return true;
}

bool is_space(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x1F);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
         c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_alpha(char32_t c) {
  if (c < 0x80) return (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
  const int k = category(c);
  return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}

bool is_digit(char32_t c) { return c < 0x80 ? c >= '0' && c <= '9' : category(c) == UTF8PROC_CATEGORY_ND; }
bool is_upper(char32_t c) { return c < 0x80 ? c >= 'A' && c <= 'Z' : category(c) == UTF8PROC_CATEGORY_LU; }
bool is_lower(char32_t c) { return c < 0x80 ? c >= 'a' && c <= 'z' : category(c) == UTF8PROC_CATEGORY_LL; }

bool is_printable(char32_t c) {
  if (c < 0x80) return c >= 0x20 && c < 0x7F;
  const int k = category(c);
  return k != UTF8PROC_CATEGORY_CN && k < UTF8PROC_CATEGORY_ZS;
}

std::string to_upper(std::string_view s) {
  std::string out;
  for (size_t at = 0; at < s.size();) append_mapped(out, decode_at(s, at), true);
  return out;
}

std::string to_lower(std::string_view s) {
  std::string out;
  for (size_t at = 0; at < s.size();) append_mapped(out, decode_at(s, at), false);
  return out;
}

std::string to_folded(std::string_view s) {
  std::string out;
  for (size_t at = 0; at < s.size();) {
    const char32_t c = decode_at(s, at);
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
  for (size_t at = 0, i = 0; at < s.size(); ++i) append_mapped(out, decode_at(s, at), i == 0);
  return out;
}

std::string to_title(std::string_view s) {
  std::string out;
  bool inside = false;
  for (size_t at = 0; at < s.size();) {
    const char32_t c = decode_at(s, at);
    append_mapped(out, c, !inside);
    inside = is_alpha(c);
  }
  return out;
}

std::string_view strip(std::string_view s, const std::string_view* chars, bool left, bool right) {
  std::vector<std::string_view> sorted;  // many characters, to find one among them in a few steps
  if (chars != nullptr && chars->size() > 32) {
    for (size_t at = 0, begin = 0; at < chars->size(); begin = at) {
      decode_at(*chars, at);
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
    const char32_t c = decode_at(s, end);
    if (!drop(s.substr(0, end), c)) break;
    s.remove_prefix(end);
  }
  while (right && !s.empty()) {
    size_t start = s.size() - 1;
    while (start > 0 && s.size() - start < 4 && (static_cast<unsigned char>(s[start]) & 0xC0) == 0x80) --start;
    size_t at = start;
    const char32_t c = decode_at(s, at);
    if (at != s.size()) start = s.size() - 1;  // broken UTF-8: its last byte is a character of its own
    if (!drop(s.substr(start), at != s.size() ? 0xFFFD : c)) break;
    s.remove_suffix(s.size() - start);
  }
  return s;
}

}  // namespace quire::jinja
