// raise_exception: a template's own refusal of its input.
#pragma once

#include "base/error.h"

namespace quire {

// A template called raise_exception(message). The message is the template author's, word for word.
// The client sent something the template refuses (HTTP 400). Every other failure is a plain Error "NAME:LINE: what".
class TemplateError : public Error {
 public:
  explicit TemplateError(const std::string& message) : Error(ErrorKind::kInvalid, message) {}
};

}  // namespace quire
