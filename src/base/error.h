// The one exception type for what comes from outside: files, requests, flags, the machine.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace quire {

enum class ErrorKind {
  kInvalid,      // the input is wrong: a broken file, a bad request, a bad flag
  kUnsupported,  // the input is right but asks for something Quire does not do
  kNotFound,     // a file, a model name
  kResource,     // not enough memory, pages, disk
};

// The message says what is wrong, where (file, field, offset, value) and, where it helps, what to do.
// Mistakes of our own are assertions, never an Error.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

// throw invalid("{}: tensor {} has {} dimensions, at most 4 are allowed", file, name, n);
template <class... A>
Error invalid(fmt::format_string<A...> f, A&&... a) {
  return {ErrorKind::kInvalid, fmt::format(f, std::forward<A>(a)...)};
}
template <class... A>
Error unsupported(fmt::format_string<A...> f, A&&... a) {
  return {ErrorKind::kUnsupported, fmt::format(f, std::forward<A>(a)...)};
}
template <class... A>
Error not_found(fmt::format_string<A...> f, A&&... a) {
  return {ErrorKind::kNotFound, fmt::format(f, std::forward<A>(a)...)};
}
template <class... A>
Error no_resource(fmt::format_string<A...> f, A&&... a) {
  return {ErrorKind::kResource, fmt::format(f, std::forward<A>(a)...)};
}

}  // namespace quire
