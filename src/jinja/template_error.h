// A template's refusal of its input (raise_exception).
#pragma once

#include "base/error.h"

namespace quire {

// The template called raise_exception(message); the message is unchanged. The input is at fault (HTTP 400). Every other
// failure is a plain Error "NAME:LINE: what".
class TemplateError : public Error {
 public:
  explicit TemplateError(const std::string& message) : Error(ErrorKind::kInvalid, message) {}
};

}  // namespace quire
