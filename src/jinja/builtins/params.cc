#include "jinja/builtins/params.h"

#include <algorithm>

namespace quire::jinja {

Params::Params(const Args& args, std::string_view function, std::initializer_list<std::string_view> names,
               size_t required)
    : function_(function) {
  if (args.positional.size() > names.size())
    throw invalid("{}() takes at most {} argument(s), {} given", function, names.size(), args.positional.size());
  for (size_t i = 0; i < args.positional.size(); ++i) given_[i] = &args.positional[i];
  for (const auto& [name, value] : args.named) {
    const auto it = std::find(names.begin(), names.end(), name);
    if (it == names.end()) throw invalid("{}() got an unexpected keyword argument '{}'", function, name);
    const auto i = static_cast<size_t>(it - names.begin());
    if (given_[i] != nullptr) throw invalid("{}() got multiple values for argument '{}'", function, name);
    given_[i] = &value;
  }
  for (size_t i = 0; i < required; ++i)
    if (given_[i] == nullptr) throw invalid("{}() is missing its argument '{}'", function, *(names.begin() + i));
}

const std::string& Params::text(size_t i) const {
  const Text* t = given_[i]->text();
  if (t == nullptr) throw invalid("{}() argument {} must be str, not {}", function_, i + 1, type_name(*given_[i]));
  return t->bytes;
}

Int Params::integer(size_t i, Int fallback) const {
  if (given_[i] == nullptr) return fallback;
  if (!given_[i]->is_int())
    throw invalid("{}() argument {} must be int, not {}", function_, i + 1, type_name(*given_[i]));
  return given_[i]->to_int();
}

}  // namespace quire::jinja
