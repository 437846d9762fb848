// One template over a few variables, for tests.
#pragma once

#include <string>

#include "text/chat_template.h"

namespace quire {

inline nlohmann::ordered_json test_variables() {
  return nlohmann::ordered_json::parse(R"({"s": "Hello, Wörld 👋", "n": 7, "f": 2.5, "l": [3, 1, 2], "none_value": null,
    "d": {"b": 1, "a": [1, null, true, "x'y"]},
    "users": [{"name": "Bob", "age": 3}, {"name": "al", "age": 5}, {"name": "Cy", "age": 4}]})");
}

inline std::string rendered(const std::string& source) {
  return ChatTemplate::parse(source, "t").render({.add_generation_prompt = false, .kwargs = test_variables()});
}

// What the Error says; "no error: TEXT" where there is none.
inline std::string error_of(const std::string& source) {
  try {
    return "no error: " + rendered(source);
  } catch (const Error& e) {
    return e.what();
  }
}

}  // namespace quire
