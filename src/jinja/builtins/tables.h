// The filters and methods by name.
#pragma once

#include <string_view>
#include <unordered_map>

#include "jinja/eval.h"

namespace quire::jinja {

using FilterTable = std::unordered_map<std::string_view, Filter>;

const FilterTable& value_filters();     // filters of texts, numbers and other single values
const FilterTable& sequence_filters();  // filters of lists and mappings

using Method = Value (*)(Evaluator&, const Value& self, const Args&);
using MethodTable = std::unordered_map<std::string_view, Method>;

// Stands for the methods that would change a dict or sort a list: forbidden, as in jinja2's immutable sandbox.
Value forbidden_method(Evaluator&, const Value&, const Args&);

const MethodTable& dict_methods();
const MethodTable& list_methods();
const MethodTable& tuple_methods();
const MethodTable& float_methods();

}  // namespace quire::jinja
