// Argument values of other syntaxes as JSON.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "json/parse.h"
#include "parsers/argument_schema.h"

namespace quire {

// `text` as a JSON string without its quotes. It may be any part of well-formed UTF-8.
std::string json_escaped(std::string_view text);
std::string json_quoted(std::string_view text);

// Whether `text` is one JSON value, at most 64 deep.
bool is_json(std::string_view text);

// A value without a type: JSON, or a Python literal, if the schema allows its type or no strings; else a string.
std::string untyped_value(std::string_view text, ValueTypes types = {});

// A Python literal: 'text', 1.5, True, None, [1, 2], {'a': 1}, (1, 2). Nothing if it is none, or deeper than 64.
std::optional<std::string> python_value(std::string_view text);

// A value of Gemma's syntax: {key:<q>text<q>,list:[1,true]}, in which `quote` stands for the token around strings.
std::optional<std::string> gemma_value(std::string_view text, char quote);

}  // namespace quire
