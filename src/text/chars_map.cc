#include "text/chars_map.h"

#include <utf8proc.h>

#include "base/error.h"
#include "base/text/utf8.h"

namespace quire {

CharsMap::CharsMap(std::string_view blob, const std::string& where) {
  const auto number = [&](size_t at) {
    uint32_t value = 0;
    for (size_t i = 0; i < 4; ++i) value |= static_cast<uint32_t>(static_cast<unsigned char>(blob[at + i])) << (8 * i);
    return value;
  };
  if (blob.size() < 4) throw invalid("{}: the precompiled_charsmap has {} bytes", where, blob.size());
  const size_t array = number(0);
  if (array % 4 != 0 || array > blob.size() - 4) {
    throw invalid("{}: the precompiled_charsmap has {} bytes, its array needs {}", where, blob.size(), array);
  }
  for (size_t at = 4; at < 4 + array; at += 4) nodes_.push_back(number(at));
  replacements_ = blob.substr(4 + array);
  if (!replacements_.empty() && replacements_.back() != '\0') {
    throw invalid("{}: the precompiled_charsmap's last replacement is not terminated", where);
  }
  constexpr size_t kLongest = 256;  // bytes; the longest in use has about 60
  for (size_t at = 0, end = 0; at < replacements_.size(); at = end + 1) {
    end = replacements_.find('\0', at);
    if (end - at > kLongest) {
      throw invalid("{}: a replacement of the precompiled_charsmap has {} bytes, at most {} are allowed", where,
                    end - at, kLongest);
    }
  }
}

std::string_view CharsMap::replacement(uint32_t offset) const {
  if (offset >= replacements_.size()) return {};
  const std::string_view rest = std::string_view(replacements_).substr(offset);
  return rest.substr(0, rest.find('\0'));
}

// Calls fn(length, replacement) for each prefix of `text` that has a replacement, shortest first. A node of the double
// array: its label in bits 0-7 (and 31), "has a value" in bit 8, the offset to its children above, times 256 if bit 9.
template <class Fn>
void CharsMap::walk(std::string_view text, Fn fn) const {
  const auto offset = [](uint32_t unit) { return (unit >> 10) << ((unit & (1u << 9)) >> 6); };
  if (nodes_.empty()) return;
  size_t node = offset(nodes_[0]);
  // Real keys have a few dozen bytes; a broken array may loop.
  for (size_t i = 0; i < text.size() && i < 256; ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c == 0) return;
    node ^= c;
    if (node >= nodes_.size()) return;
    const uint32_t unit = nodes_[node];
    if ((unit & ((1u << 31) | 0xFF)) != c) return;
    node ^= offset(unit);
    if ((unit >> 8) & 1) {
      if (node >= nodes_.size()) return;
      if (!fn(i + 1, replacement(nodes_[node] & 0x7FFFFFFF))) return;
    }
  }
}

CharsMap::Found CharsMap::longest_prefix(std::string_view text) const {
  Found found;
  walk(text, [&](size_t length, std::string_view with) {
    found = {length, with};
    return true;
  });
  return found;
}

CharsMap::Found CharsMap::shortest_prefix(std::string_view text) const {
  Found found;
  walk(text, [&](size_t length, std::string_view with) {
    found = {length, with};
    return false;
  });
  return found;
}

std::string CharsMap::apply_prefixes(std::string_view text) const {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Found found = longest_prefix(text.substr(at));
    const size_t length = found.length > 0 ? found.length : utf8_length(text[at]);
    out += found.length > 0 ? found.replacement : text.substr(at, length);
    at += length;
  }
  return out;
}

std::string CharsMap::apply_graphemes(std::string_view text) const {
  std::string out;
  out.reserve(text.size());
  const auto one = [&](std::string_view part) {
    // The library replaces the whole part by the replacement of its shortest prefix that has one.
    const Found found = shortest_prefix(part);
    if (found.length == 0) return false;
    out += found.replacement;
    return true;
  };
  const auto grapheme = [&](std::string_view part) {
    if (part.size() < 6 && one(part)) return;
    for (size_t at = 0; at < part.size();) {
      const std::string_view character = part.substr(at, utf8_length(part[at]));
      if (!one(character)) out += character;
      at += character.size();
    }
  };
  size_t begin = 0;
  utf8proc_int32_t state = 0, before = -1;
  for (size_t at = 0; at < text.size();) {
    const size_t here = at;
    const auto c = static_cast<utf8proc_int32_t>(utf8_next(text, at));
    if (before >= 0 && utf8proc_grapheme_break_stateful(before, c, &state)) {
      grapheme(text.substr(begin, here - begin));
      begin = here;
    }
    before = c;
  }
  if (begin < text.size()) grapheme(text.substr(begin));
  return out;
}

}  // namespace quire
