// The message of the Error that a call throws.
#pragma once

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

}  // namespace quire
