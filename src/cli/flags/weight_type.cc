#include "cli/flags/weight_type.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>

#include "base/error.h"

namespace quire {

std::vector<TensorType> loadable_weight_types() {
  std::vector<TensorType> types;
  for (const TensorTypeInfo& t : tensor_types()) {
    if (t.loadable) types.push_back(t.type);
  }
  return types;
}

std::vector<std::string> names_of(const std::vector<TensorType>& types) {
  std::vector<std::string> names;
  for (const TensorType type : types) {
    std::string& spelled = names.emplace_back(name(type));
    std::ranges::transform(spelled, spelled.begin(),
                           [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  }
  return names;
}

std::string weight_type_names() { return fmt::format("{}", fmt::join(names_of(loadable_weight_types()), ", ")); }

TensorType parse_weight_type(const char* flag, const std::string& text) {
  std::string upper = text;
  std::transform(upper.begin(), upper.end(), upper.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  if (upper.ends_with("_K_M") || upper.ends_with("_K_S")) upper.resize(upper.size() - 2);
  const auto type = tensor_type_from_name(upper);
  if (!type || !info(*type).loadable)
    throw invalid("{} {} is not a weight type; use one of {}", flag, text, weight_type_names());
  return *type;
}

}  // namespace quire
