// A tokenizer's steps may make a text longer, but not by much: a broken or hostile file, whose steps double a text
// again and again, ends in an Error instead of all memory.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/error.h"

namespace quire {

// What may become of `bytes` of text. Real steps make them at most eleven times as long (NFKD).
constexpr size_t longest_result(size_t bytes) { return 64 * (bytes + 64); }

// Appends `part`, unless `out` would be longer than `most`.
inline void append_within(std::string& out, std::string_view part, size_t most) {
  if (part.size() > most || out.size() > most - part.size()) {
    throw invalid("the tokenizer's steps make a text longer than {} bytes", most);
  }
  out += part;
}

}  // namespace quire
