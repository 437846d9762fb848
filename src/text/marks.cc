#include "text/marks.h"

#include <fmt/format.h>

#include <algorithm>
#include <bitset>
#include <charconv>

#include "base/error.h"
#include "base/text/utf8.h"

namespace quire {
namespace {

constexpr uint32_t kFirst = 0xE000, kLast = 0xF8FF;  // private use; JSON escapes each as one \\uXXXX
constexpr std::string_view kEscape = "\\u";

}  // namespace

std::vector<std::string> unused_characters(std::span<const std::string_view> texts, size_t count) {
  std::bitset<kLast + 1> used;
  const auto use = [&](uint32_t character) {
    if (character >= kFirst && character <= kLast) used.set(character);
  };
  for (const std::string_view text : texts) {
    for (size_t at = 0; at < text.size(); ++at) {
      // As UTF-8 they are EE 80 80 … EF A3 BF.
      if ((static_cast<unsigned char>(text[at]) & 0xFE) == 0xEE) {
        size_t end = at;
        use(utf8_next(text, end));
      } else if (text.substr(at).starts_with(kEscape)) {
        const std::string_view digits = text.substr(at + kEscape.size(), 4);
        uint32_t character = 0;
        std::from_chars(digits.data(), digits.data() + digits.size(), character, 16);
        use(character);
      }
    }
  }
  std::vector<std::string> unused;
  for (uint32_t character = kFirst; character <= kLast && unused.size() < count; ++character) {
    if (!used[character]) append_utf8(character, unused.emplace_back());
  }
  if (unused.size() == count) return unused;
  throw invalid("the text contains more than {} of the {} private use characters U+E000 to U+F8FF; remove some",
                kLast - kFirst + 1 - count, kLast - kFirst + 1);
}

std::string insert_marks(std::string_view text, std::span<const size_t> offsets, std::string_view mark) {
  std::string marked;
  marked.reserve(text.size() + offsets.size() * mark.size());
  size_t done = 0;
  for (const size_t at : offsets) {
    marked += text.substr(done, at - done);
    marked += mark;
    done = at;
  }
  marked += text.substr(done);
  return marked;
}

std::vector<size_t> remove_marks(std::string& text, std::string_view mark) {
  size_t start = 0;
  const std::string escaped = fmt::format("{}{:04x}", kEscape, static_cast<uint32_t>(utf8_next(mark, start)));
  std::vector<size_t> offsets;
  std::string clean;
  clean.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const std::string_view rest = std::string_view(text).substr(at);
    const size_t length = rest.starts_with(mark) ? mark.size() : rest.starts_with(escaped) ? escaped.size() : 0;
    if (length > 0) {
      if (offsets.empty() || offsets.back() != clean.size()) offsets.push_back(clean.size());
      at += length;
    } else {
      clean += text[at++];
    }
  }
  if (!offsets.empty() && offsets.back() == clean.size()) offsets.pop_back();
  text = std::move(clean);
  return offsets;
}

}  // namespace quire
