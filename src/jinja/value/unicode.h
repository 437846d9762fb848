// Strings as Python sees them: sequences of Unicode characters, stored as UTF-8. An ill-formed byte counts as one
// character, U+FFFD.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/text/unicode.h"
#include "base/text/utf8.h"

namespace quire::jinja {

size_t char_count(std::string_view s);
size_t byte_of_char(std::string_view s, size_t index);  // s.size() if there are fewer characters

bool is_space(char32_t c);  // str.isspace: white space, and the separators U+001C to U+001F

std::string to_upper(std::string_view s);
std::string to_lower(std::string_view s);
std::string to_folded(std::string_view s);
std::string capitalized(std::string_view s);
std::string to_title(std::string_view s);  // str.title: the first letter of each run of letters is upper case

// Without the leading (left) and trailing (right) characters that are in `chars`; null: white space.
std::string_view strip(std::string_view s, const std::string_view* chars, bool left, bool right);

}  // namespace quire::jinja
