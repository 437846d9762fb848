// Offsets that follow a text through a transformation: a mark, which is a character that occurs nowhere else, is put
// before the byte at each offset and taken out of the result.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

// Private use characters, as UTF-8, that none of the texts contains, neither as they are nor escaped as in JSON. Throws
// Error if fewer than `count` of the 6,400 in the Basic Multilingual Plane are left.
std::vector<std::string> unused_characters(std::span<const std::string_view> texts, size_t count);
inline std::string unused_character(std::span<const std::string_view> texts) { return unused_characters(texts, 1)[0]; }

// `offsets` are ascending.
std::string insert_marks(std::string_view text, std::span<const size_t> offsets, std::string_view mark);

// Removes all marks, also those escaped as in JSON, and returns the offsets in the text without them, ascending. The
// mark at the end of a text has none.
std::vector<size_t> remove_marks(std::string& text, std::string_view mark);

}  // namespace quire
