// JSON Schema's `format`s that are enforced, as regexes in the syntax of ECMA-262.
#pragma once

#include <string>
#include <string_view>

namespace quire::grammar {

// The whole string matches. Empty: this format is not supported.
std::string format_pattern(std::string_view name);

}  // namespace quire::grammar
