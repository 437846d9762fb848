// Operations shared by str's methods and the filters of the same name.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "jinja/value/value.h"

namespace quire::jinja {

std::string replaced(Meter& meter, std::string_view s, std::string_view from, std::string_view to,
                     Int count);  // count < 0: all
std::vector<std::string_view> split_lines(std::string_view s, bool keep_ends);
// str.split and str.rsplit: by white space if `separator` is null; at most `count` cuts, < 0: all.
std::vector<std::string_view> split(Meter& meter, std::string_view s, const std::string* separator, Int count,
                                    bool right);
std::string justified(std::string_view s, Int width, std::string_view fill, char align);  // align: < > ^

}  // namespace quire::jinja
