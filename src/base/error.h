// Formats the messages of Errors (quire/error.h). Bugs of our own are assertions, never an Error.
#pragma once

#include <fmt/format.h>

#include <utility>

#include "quire/error.h"

namespace quire {

// An option that does not go with the model, the device or another option: the command line is wrong, whatever has to be read
// to see it.
class OptionError : public Error {
 public:
  using Error::Error;
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
