// Python's two ways of formatting: 'text %s' % value and 'text {}'.format(value).
#pragma once

#include <string_view>

#include "jinja/eval.h"

namespace quire::jinja {

Value percent_format(Evaluator& evaluator, std::string_view format, const Value& values);
Value brace_format(Evaluator& evaluator, std::string_view format, const Args& args);

}  // namespace quire::jinja
