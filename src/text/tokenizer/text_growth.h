// Bounds how much a tokenizer's steps may lengthen a text: steps of a hostile file that double it again and again end
// in an Error before memory runs out.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/error.h"

namespace quire {

// The longest allowed result for `bytes` of text. Real steps make it at most eleven times as long (NFKD).
constexpr size_t longest_result(size_t bytes) { return 64 * (bytes + 64); }

// Appends `part`; throws Error if `out` would exceed `most` bytes.
inline void append_within(std::string& out, std::string_view part, size_t most) {
  if (part.size() > most || out.size() > most - part.size()) {
    throw invalid("the tokenizer's steps produce more than {} bytes", most);
  }
  out += part;
}

}  // namespace quire
