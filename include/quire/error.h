// The one exception type for bad input: files, requests, options, and limits of the machine.
#pragma once

#include <stdexcept>
#include <string>

namespace quire {

enum class ErrorKind {
  kInvalid,      // malformed input: a broken file, a bad request or option
  kUnsupported,  // valid input that needs a feature Quire does not have
  kNotFound,     // no such file or model
  kResource,     // not enough memory, pages or disk space
};

// what() names the problem, where it is (file, field, offset, value) and, where it helps, what to do.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

}  // namespace quire
