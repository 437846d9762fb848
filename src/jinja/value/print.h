// Values as text: str(), repr() and JSON as in Python.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "jinja/value/value.h"

namespace quire::jinja {

void print(Meter& meter, const Value& v, std::string& out);       // appends str(v)
void print_repr(Meter& meter, const Value& v, std::string& out);  // appends repr(v)
std::string float_repr(double d);
std::string text_of(Meter& meter, const Value& v);  // str(v)

struct JsonStyle {
  bool ascii = false;
  bool sorted = false;
  bool multiline = false;  // one item per line, indented
  std::string indent;
  std::string comma = ", ", colon = ": ";
};
std::string to_json(Meter& meter, const Value& v, const JsonStyle& style);  // json.dumps; Error: not serializable

Value from_json(Meter& meter, const nlohmann::ordered_json& json);

}  // namespace quire::jinja
