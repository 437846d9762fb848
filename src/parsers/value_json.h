// Argument values of other syntaxes as JSON.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "json/parse.h"
#include "parsers/answer_parser.h"

namespace quire {

// `text` as a JSON string without its quotes. It may be any part of well-formed UTF-8.
std::string json_escaped(std::string_view text);
std::string json_quoted(std::string_view text);

// The type that the tool's schema asks of an argument: true if it is a string and nothing else.
bool is_string_argument(const ToolSchema* tool, std::string_view key);

// An untyped value: JSON if it is some and the schema does not ask for a string, else a string.
std::string untyped_value(std::string_view text);

// A Python literal: 'text', 1.5, True, None, [1, 2], {'a': 1}, (1, 2). Nothing if it is none, or deeper than 64.
std::optional<std::string> python_value(std::string_view text);

// A value of Gemma's syntax: {key:<q>text<q>,list:[1,true]}, in which `quote` stands for the token around strings.
std::optional<std::string> gemma_value(std::string_view text, char quote);

}  // namespace quire
