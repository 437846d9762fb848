// Renders a template with a few variables, for tests.
#pragma once

#include <string>

#include "jinja/template.h"

namespace quire {

inline nlohmann::ordered_json test_variables() {
  return nlohmann::ordered_json::parse(R"({"s": "Hello, Wörld 👋", "n": 7, "f": 2.5, "l": [3, 1, 2], "none_value": null,
    "d": {"b": 1, "a": [1, null, true, "x'y"]},
    "users": [{"name": "Bob", "age": 3}, {"name": "al", "age": 5}, {"name": "Cy", "age": 4}]})");
}

inline std::string rendered(const std::string& source) {
  const nlohmann::ordered_json json = test_variables();
  std::vector<jinja::Variable> variables;
  for (const auto& [name, value] : json.items()) variables.push_back({name, &value});
  return jinja::Template::parse(source, "t").render(variables, jinja::parse_time("2026-11-21T12:34:56"));
}

// The Error's message, or "no error: TEXT".
inline std::string error_of(const std::string& source) {
  try {
    return "no error: " + rendered(source);
  } catch (const Error& e) {
    return e.what();
  }
}

}  // namespace quire
