#include "json/empty_objects.h"

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>

namespace quire {
namespace {

// Keywords whose value is a schema, a map of schemas, or a list of schemas.
constexpr std::string_view kSchemas[] = {"additionalProperties",
                                         "unevaluatedProperties",
                                         "unevaluatedItems",
                                         "propertyNames",
                                         "contains",
                                         "not",
                                         "if",
                                         "then",
                                         "else",
                                         "additionalItems",
                                         "items"},
                           kMaps[] = {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"},
                           kLists[] = {"anyOf", "allOf", "oneOf", "prefixItems", "items"};

bool is_among(std::span<const std::string_view> keywords, std::string_view key) {
  return std::ranges::find(keywords, key) != keywords.end();
}

void mend(Json& schema) {
  if (is_empty_list(schema)) schema = Json::object();
  if (!schema.is_object()) return;
  for (auto& [key, value] : schema.items()) {
    if (is_among(kMaps, key)) {
      if (is_empty_list(value)) value = Json::object();
      if (!value.is_object()) continue;
      for (Json& part : value) mend(part);
    } else if (is_among(kLists, key) && value.is_array() && !value.empty()) {
      for (Json& part : value) mend(part);
    } else if (is_among(kSchemas, key)) {
      mend(value);
    }
  }
}

}  // namespace

Json with_empty_objects(Json schema) {
  mend(schema);
  return schema;
}

}  // namespace quire
