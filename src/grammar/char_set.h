// Sets of characters, and how they are written in bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "grammar/regex.h"

namespace quire::grammar {

// Ascending ranges of code points, both ends included, neither overlapping nor touching. Surrogates are not characters.
class CharSet {
 public:
  CharSet() = default;
  CharSet(std::initializer_list<std::pair<char32_t, char32_t>> ranges);
  static CharSet all() { return {{0, 0x10FFFF}}; }

  void add(char32_t first, char32_t last);
  void add(const CharSet& other);
  CharSet complement() const;
  CharSet without(const CharSet& other) const;
  bool has(char32_t c) const;
  std::span<const std::pair<char32_t, char32_t>> ranges() const { return ranges_; }
  auto operator<=>(const CharSet&) const = default;  // NOLINT(modernize-use-nullptr): clang-tidy 14 misreads <=>

 private:
  std::vector<std::pair<char32_t, char32_t>> ranges_;
};

// How text is written: as UTF-8, or inside the quotes of a JSON string. There, characters stand for themselves where
// JSON allows it; '"' and '\' are escaped by '\'; controls are written as \uXXXX or shorter (\n); U+007F and all beyond
// ASCII stand for themselves or are written as \uXXXX. Nothing else is escaped, so ASCII texts have one form.
enum class Encoding : uint8_t { kUtf8, kJson };

// Regexes of characters. Keeps what it has made.
class CharEncoder {
 public:
  explicit CharEncoder(RegexStore& store) : store_(&store) {}
  RegexId one_of(const CharSet& set, Encoding encoding);
  RegexId any(Encoding encoding) { return one_of(CharSet::all(), encoding); }
  RegexId literal(std::string_view text, Encoding encoding);  // well-formed UTF-8

 private:
  RegexId utf8(const CharSet& set);
  RegexId json(const CharSet& set);

  RegexStore* store_;
  std::map<std::pair<CharSet, Encoding>, RegexId> made_;
};

// The texts of lo.size() digits from lo to hi, in the order of numbers. Digits are from `least` to `most`; bytes_of says
// how digits first … last are written.
RegexId digit_range(RegexStore& store, std::span<const uint8_t> lo, std::span<const uint8_t> hi, uint8_t least,
                    uint8_t most, const std::function<ByteSet(uint8_t first, uint8_t last)>& bytes_of);

}  // namespace quire::grammar
