#include "quantize/hf/methods.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"

namespace quire {

std::span<const HfMethod* const> hf_methods() {
  static constexpr const HfMethod* kAll[] = {&kGptqMethod,  &kAwqMethod,   &kSmoothQuantMethod, &kLlmInt8Method,
                                             &kNf4Method,   &kFp4Method,   &kFp8Method,         &kFp8BlockMethod,
                                             &kMxfp4Method, &kNvfp4Method, &kRtnInt4Method,     &kRtnInt8Method};
  return kAll;
}

const HfMethod& find_hf_method(std::string_view name) {
  const auto all = hf_methods();
  const auto found = std::ranges::find(all, name, [](const HfMethod* m) { return m->name; });
  if (found != all.end()) return **found;
  std::vector<std::string_view> names;
  for (const HfMethod* method : all) names.push_back(method->name);
  throw invalid("{} is not a method; use one of {}", name, fmt::join(names, ", "));
}

}  // namespace quire
