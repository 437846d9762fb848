// Strings as Python sees them: sequences of Unicode characters, held as UTF-8. A byte that is not UTF-8 counts as one
// character, U+FFFD.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace quire::jinja {

char32_t decode_at(std::string_view s, size_t& at);  // the character at byte `at`, which moves behind it; at < s.size()
void append_utf8(std::string& out, char32_t c);
size_t char_count(std::string_view s);
size_t byte_of_char(std::string_view s, size_t index);  // s.size() at or behind the end
bool is_valid_utf8(std::string_view s);

bool is_space(char32_t c);
bool is_alpha(char32_t c);
bool is_digit(char32_t c);  // str.isdigit, but without superscripts
bool is_upper(char32_t c);
bool is_lower(char32_t c);
bool is_printable(char32_t c);  // repr() shows it as it is

std::string to_upper(std::string_view s);
std::string to_lower(std::string_view s);
std::string to_folded(std::string_view s);
std::string capitalized(std::string_view s);
std::string to_title(std::string_view s);  // str.title: the first letter of each run of letters is upper case

// Without the leading (left) and trailing (right) characters that are in `chars`; null: white space.
std::string_view strip(std::string_view s, const std::string_view* chars, bool left, bool right);

}  // namespace quire::jinja
