// The filters by name, in two rooms.
#pragma once

#include <string_view>
#include <unordered_map>

#include "jinja/eval.h"

namespace quire::jinja {

using FilterTable = std::unordered_map<std::string_view, Filter>;

const FilterTable& value_filters();     // of a text, a number, any value
const FilterTable& sequence_filters();  // of lists and mappings

}  // namespace quire::jinja
