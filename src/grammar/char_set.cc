#include "grammar/char_set.h"

#include <algorithm>
#include <array>
#include <string>

#include "base/text/utf8.h"

namespace quire::grammar {

CharSet::CharSet(std::initializer_list<std::pair<char32_t, char32_t>> ranges) {
  for (const auto& [first, last] : ranges) add(first, last);
}

void CharSet::add(char32_t first, char32_t last) {
  const auto begin = std::ranges::find_if(ranges_, [&](const auto& range) { return range.second + 1 >= first; });
  auto end = begin;
  for (; end != ranges_.end() && end->first <= last + 1; ++end) {
    first = std::min(first, end->first);
    last = std::max(last, end->second);
  }
  ranges_.insert(ranges_.erase(begin, end), {first, last});
}

void CharSet::add(const CharSet& other) {
  for (const auto& [first, last] : other.ranges_) add(first, last);
}

CharSet CharSet::complement() const {
  CharSet made;
  char32_t next = 0;
  for (const auto& [first, last] : ranges_) {
    if (first > next) made.ranges_.emplace_back(next, first - 1);
    next = last + 1;
  }
  if (next <= 0x10FFFF) made.ranges_.emplace_back(next, 0x10FFFF);
  return made;
}

CharSet CharSet::without(const CharSet& other) const {
  CharSet outside = complement();
  outside.add(other);
  return outside.complement();
}

bool CharSet::has(char32_t c) const {
  return std::ranges::any_of(ranges_, [&](const auto& range) { return range.first <= c && c <= range.second; });
}

RegexId digit_range(RegexStore& store, std::span<const uint8_t> lo, std::span<const uint8_t> hi, uint8_t least,
                    uint8_t most, const std::function<ByteSet(uint8_t, uint8_t)>& bytes_of) {
  if (lo.empty()) return kEmpty;
  const auto is = [](uint8_t value) { return [value](uint8_t digit) { return digit == value; }; };
  const std::span<const uint8_t> lo_rest = lo.subspan(1), hi_rest = hi.subspan(1);
  const std::vector<uint8_t> lowest(lo_rest.size(), least), highest(lo_rest.size(), most);
  const auto digits = [&](int first, int last, std::span<const uint8_t> from, std::span<const uint8_t> to) {
    if (first > last) return kNothing;
    return store.concat(store.bytes(bytes_of(static_cast<uint8_t>(first), static_cast<uint8_t>(last))),
                        digit_range(store, from, to, least, most, bytes_of));
  };
  if (lo[0] == hi[0]) return digits(lo[0], lo[0], lo_rest, hi_rest);
  int first = lo[0], last = hi[0];
  std::vector<RegexId> parts;
  if (!std::ranges::all_of(lo_rest, is(least))) parts.push_back(digits(first, first, lo_rest, highest)), ++first;
  if (!std::ranges::all_of(hi_rest, is(most))) parts.push_back(digits(last, last, lowest, hi_rest)), --last;
  parts.push_back(digits(first, last, lowest, highest));
  return store.any_of(std::move(parts));
}

RegexId CharEncoder::one_of(const CharSet& set, Encoding encoding) {
  const auto key = std::pair(set, encoding);
  if (const auto found = made_.find(key); found != made_.end()) return found->second;
  const RegexId regex = encoding == Encoding::kUtf8 ? utf8(set) : json(set);
  made_.emplace(key, regex);
  return regex;
}

RegexId CharEncoder::literal(std::string_view text, Encoding encoding) {
  if (encoding == Encoding::kUtf8) return store_->literal(text);
  std::vector<RegexId> parts;
  for (size_t at = 0; at < text.size();) {
    const char32_t c = utf8_next(text, at);
    parts.push_back(one_of({{c, c}}, encoding));
  }
  RegexId made = kEmpty;
  for (size_t i = parts.size(); i-- > 0;) made = store_->concat(parts[i], made);
  return made;
}

RegexId CharEncoder::utf8(const CharSet& set) {
  // Characters of equal length whose bytes are digits of a number: the first byte, then continuation bytes.
  static constexpr std::pair<char32_t, char32_t> kLengths[] = {
      {0, 0x7F}, {0x80, 0x7FF}, {0x800, 0xD7FF}, {0xE000, 0xFFFF}, {0x10000, 0x10FFFF}};
  const auto itself = [](uint8_t first, uint8_t last) { return ByteSet::range(first, last); };
  ByteSet ascii;
  std::vector<RegexId> parts;
  for (const auto& range : set.ranges()) {
    for (const auto& length : kLengths) {
      const char32_t first = std::max(range.first, length.first), last = std::min(range.second, length.second);
      if (first > last) continue;
      if (last <= 0x7F) {
        ascii |= ByteSet::range(first, last);
        continue;
      }
      std::string lo, hi;
      append_utf8(first, lo);
      append_utf8(last, hi);
      const std::vector<uint8_t> from(lo.begin(), lo.end()), to(hi.begin(), hi.end());
      parts.push_back(digit_range(*store_, from, to, 0x80, 0xBF, itself));
    }
  }
  parts.push_back(store_->bytes(ascii));
  return store_->any_of(std::move(parts));
}

namespace {

constexpr std::pair<char32_t, char> kShortEscapes[] = {{'"', '"'},  {'\\', '\\'}, {'\b', 'b'}, {'\f', 'f'},
                                                       {'\n', 'n'}, {'\r', 'r'},  {'\t', 't'}};

RegexId hex_range(RegexStore& store, uint32_t first, uint32_t last) {
  const auto digits = [](uint32_t value) {
    return std::array<uint8_t, 4>{static_cast<uint8_t>(value >> 12 & 15), static_cast<uint8_t>(value >> 8 & 15),
                                  static_cast<uint8_t>(value >> 4 & 15), static_cast<uint8_t>(value & 15)};
  };
  const auto bytes_of = [](uint8_t from, uint8_t to) {
    ByteSet set;
    for (unsigned digit = from; digit <= to; ++digit) {
      set.add(static_cast<unsigned char>("0123456789abcdef"[digit]));
      set.add(static_cast<unsigned char>("0123456789ABCDEF"[digit]));
    }
    return set;
  };
  return store.concat(store.literal("\\u"), digit_range(store, digits(first), digits(last), 0, 15, bytes_of));
}

}  // namespace

RegexId CharEncoder::json(const CharSet& set) {
  const CharSet never_raw{{0, 0x1F}, {'"', '"'}, {'\\', '\\'}};
  std::vector<RegexId> parts{utf8(set.without(never_raw))};
  for (const auto& [c, letter] : kShortEscapes) {
    if (set.has(c)) parts.push_back(store_->literal(std::string{'\\', letter}));
  }
  const CharSet never_escaped{{0x20, 0x7E}};
  const CharSet escaped = set.without(never_escaped);
  for (const auto& [first, last] : escaped.ranges()) {
    constexpr std::pair<char32_t, char32_t> kParts[] = {{0, 0xD7FF}, {0xE000, 0xFFFF}};
    for (const auto& part : kParts) {
      const char32_t from = std::max(first, part.first), to = std::min(last, part.second);
      if (from <= to) parts.push_back(hex_range(*store_, from, to));
    }
    if (last < 0x10000) continue;
    // Pairs of surrogates: whole rows of 1,024 characters share the first half's range.
    const uint32_t from = std::max(first, char32_t{0x10000}) - 0x10000, to = last - 0x10000;
    const auto pairs = [&](uint32_t row_from, uint32_t row_to, uint32_t low_from, uint32_t low_to) {
      if (row_from > row_to || row_to == UINT32_MAX) return;
      parts.push_back(store_->concat(hex_range(*store_, 0xD800 + row_from, 0xD800 + row_to),
                                     hex_range(*store_, 0xDC00 + low_from, 0xDC00 + low_to)));
    };
    uint32_t row = from >> 10;
    uint32_t last_row = to >> 10;
    if (row == last_row) {
      pairs(row, row, from & 1023, to & 1023);
      continue;
    }
    if ((from & 1023) != 0) pairs(row, row, from & 1023, 1023), ++row;
    if ((to & 1023) != 1023) pairs(last_row, last_row, 0, to & 1023), --last_row;
    pairs(row, last_row, 0, 1023);
  }
  return store_->any_of(std::move(parts));
}

}  // namespace quire::grammar
