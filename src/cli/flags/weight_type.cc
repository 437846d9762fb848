#include "cli/flags/weight_type.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>

#include "base/error.h"
#include "quant/encode.h"

namespace quire {

std::vector<TensorType> loadable_weight_types() {
  std::vector<TensorType> types;
  for (const TensorTypeInfo& t : tensor_types()) {
    if (t.loadable) types.push_back(t.type);
  }
  return types;
}

std::string weight_type_names() {
  std::vector<std::string> names;
  for (const TensorType type : loadable_weight_types()) {
    std::string& spelled = names.emplace_back(name(type));
    std::ranges::transform(spelled, spelled.begin(),
                           [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

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

TensorType parse_writable_type(const char* flag, const std::string& text) {
  const TensorType type = parse_weight_type(flag, text);
  if (!is_writable(type)) throw unsupported("{} {}: the type cannot be written yet", flag, text);
  return type;
}

std::string check_writable_type(const std::string& text) {
  try {
    static_cast<void>(parse_writable_type("type", text));
    return "";
  } catch (const Error& e) {
    return e.what();
  }
}

}  // namespace quire
