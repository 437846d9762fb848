// JSON Schema's `format`s that are enforced, as regexes in the syntax of ECMA-262.
#pragma once

#include <string>
#include <string_view>

namespace quire::grammar {

// The whole string matches. Empty: this format is not enforced.
std::string format_pattern(std::string_view name);
// Whether the standard gives this format of strings a meaning that is not enforced. All other formats are annotations.
bool is_refused_format(std::string_view name);

}  // namespace quire::grammar
