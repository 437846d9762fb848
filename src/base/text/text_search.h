// Finds a text in another in linear time. std::string_view's find starts a comparison at every position, which takes
// quadratic time on texts such as aaaa…
#pragma once

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>

namespace quire {

inline constexpr size_t kShortText = 64;  // shorter texts: string_view's find is fast enough

// Same as text.find(what, from).
inline size_t find_text(std::string_view text, std::string_view what, size_t from = 0) {
  if (what.size() < kShortText || from > text.size()) return text.find(what, from);
  const void* const found = memmem(text.data() + from, text.size() - from, what.data(), what.size());
  return found ? static_cast<size_t>(static_cast<const char*>(found) - text.data()) : std::string_view::npos;
}

// Same as text.rfind(what).
inline size_t rfind_text(std::string_view text, std::string_view what) {
  if (what.size() < kShortText || what.size() > text.size()) return text.rfind(what);
  const std::string back(text.rbegin(), text.rend()), what_back(what.rbegin(), what.rend());
  const size_t found = find_text(back, what_back);
  return found == std::string_view::npos ? found : text.size() - found - what.size();
}

}  // namespace quire
