// The message of the Error that a call throws, for tests.
#pragma once

#include <filesystem>
#include <string>

#include "base/error.h"

namespace quire {

// Empty if the call throws none.
std::string error_of(auto&& call) {
  try {
    call();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

// The same, with FILE for the path of this file.
std::string error_of(const std::filesystem::path& file, auto&& call) {
  std::string text = error_of(call);
  if (const size_t at = text.find(file.string()); at != text.npos) text.replace(at, file.string().size(), "FILE");
  return text;
}

}  // namespace quire
