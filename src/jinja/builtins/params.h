// The arguments of a call, by the function's parameters.
#pragma once

#include <array>
#include <initializer_list>
#include <string_view>

#include "jinja/value/value.h"

namespace quire::jinja {

// Params p(args, "replace", {"old", "new", "count"}, 2): two are required. Throws Error for too many, unknown, repeated
// or missing arguments.
class Params {
 public:
  Params(const Args& args, std::string_view function, std::initializer_list<std::string_view> names,
         size_t required = 0);

  const Value* operator[](size_t i) const { return given_[i]; }  // null: not given
  bool has(size_t i) const { return given_[i] != nullptr && !given_[i]->is_none(); }
  const std::string& text(size_t i) const;  // must be given; Error: not a string
  Int integer(size_t i, Int fallback) const;
  bool flag(size_t i, bool fallback) const { return given_[i] == nullptr ? fallback : is_true(*given_[i]); }

 private:
  std::string_view function_;
  std::array<const Value*, 6> given_{};
};

}  // namespace quire::jinja
