// Lists of allowed values in messages.
#pragma once

#include <fmt/format.h>

#include <iterator>
#include <string>

namespace quire {

// "2, 3, 4 or 8"
template <class Range>
std::string one_of(const Range& values) {
  std::string text;
  for (auto it = std::begin(values); it != std::end(values); ++it)
    text += fmt::format("{}{}", it == std::begin(values) ? "" : std::next(it) == std::end(values) ? " or " : ", ", *it);
  return text;
}

}  // namespace quire
