#include "grammar/schema/closed_schema.h"

#include <algorithm>
#include <string_view>

namespace quire::grammar {
namespace {

using Json = nlohmann::ordered_json;

// Where smaller alternatives make the whole larger, or parts meet that must agree on the properties.
constexpr std::string_view kEntangled[] = {"allOf",
                                           "oneOf",
                                           "not",
                                           "if",
                                           "then",
                                           "else",
                                           "dependencies",
                                           "contains",
                                           "dependentSchemas",
                                           "propertyNames",
                                           "$dynamicRef",
                                           "unevaluatedItems"};

template <size_t N>
bool is_one_of(std::string_view name, const std::string_view (&names)[N]) {
  return std::ranges::find(names, name) != std::end(names);
}

// Calls f on each schema within `schema`, parts first.
template <class Visit>
void for_each_schema(Json& schema, const Visit& visit) {
  if (!schema.is_object()) return;
  for (auto& [keyword, value] : schema.items()) {
    if (keyword == "properties" || keyword == "patternProperties" || keyword == "$defs" || keyword == "definitions") {
      if (!value.is_object()) continue;
      for (auto& [name, part] : value.items()) for_each_schema(part, visit);
    } else if (value.is_array() && (keyword == "anyOf" || keyword == "prefixItems" || keyword == "items")) {
      for (Json& part : value) for_each_schema(part, visit);
    } else if (keyword == "items" || keyword == "additionalItems" || keyword == "additionalProperties") {
      for_each_schema(value, visit);
    }
  }
  visit(schema);
}

bool is_entangled(const Json& schema) {
  constexpr std::string_view kOfObjects[] = {"properties", "required", "patternProperties", "additionalProperties"};
  const auto has = [&](const auto& names) {
    return std::ranges::any_of(schema.items(), [&](const auto& member) { return is_one_of(member.key(), names); });
  };
  const int speakers =
      (has(kOfObjects) ? 1 : 0) + (schema.contains("anyOf") ? 1 : 0) + (schema.contains("$ref") ? 1 : 0);
  return has(kEntangled) || speakers > 1;
}

void close(Json& object) {
  constexpr std::string_view kSpeaksOfOthers[] = {"additionalProperties", "unevaluatedProperties", "patternProperties",
                                                  "minProperties"};
  const auto properties = object.find("properties");
  if (properties == object.end() || !properties->is_object()) return;
  for (const auto& [keyword, value] : object.items()) {
    if (is_one_of(keyword, kSpeaksOfOthers)) return;
  }
  if (const auto required = object.find("required"); required != object.end() && required->is_array()) {
    for (const Json& name : *required) {
      if (!name.is_string() || !properties->contains(name.get_ref<const std::string&>())) return;
    }
  }
  object["additionalProperties"] = false;
}

}  // namespace

Json closed_schema(Json schema) {
  bool entangled = false;
  for_each_schema(schema, [&](const Json& part) { entangled |= is_entangled(part); });
  if (!entangled) for_each_schema(schema, close);
  return schema;
}

}  // namespace quire::grammar
