// Values of flags that a function of ours reads.
#pragma once

#include <CLI/CLI.hpp>

#include <functional>
#include <string>
#include <utility>

#include "base/error.h"

namespace quire {

// A check of a flag's value by a function that throws Error: then the exit code is 2, and the Error's message is shown.
inline CLI::Validator parsed_by(std::function<void(const std::string&)> parse) {
  return {[parse = std::move(parse)](const std::string& text) -> std::string {
            try {
              parse(text);
              return "";
            } catch (const Error& e) {
              return e.what();
            }
          },
          "", ""};
}

}  // namespace quire
