// `not`: one of the keywords of a schema does not hold, so it becomes a choice of schemas, a keyword each.
#include <algorithm>

#include "base/quote.h"
#include "grammar/schema_compiler.h"

namespace quire::grammar {
namespace {

// Keywords whose opposite is not a schema.
constexpr const char* kNotNegated[] = {"multipleOf",
                                       "format",
                                       "items",
                                       "prefixItems",
                                       "additionalItems",
                                       "uniqueItems",
                                       "contains",
                                       "additionalProperties",
                                       "patternProperties",
                                       "propertyNames",
                                       "if",
                                       "oneOf",
                                       "dependencies",
                                       "dependentRequired",
                                       "dependentSchemas"};

}  // namespace

const Json& SchemaCompiler::negation(const Json& schema) {
  if (schema.is_object() && schema.contains(kSame)) return negation(document_.same_of(schema[kSame]));
  return document_.derived(schema, Derivation::kNegation, [&] {
    if (schema.is_boolean()) return Json(!schema.get<bool>());
    if (!schema.is_object()) throw document_.invalid_at(schema, "not", "expected a schema, found {}", describe(schema));
    check_keywords(schema);
    Json any = Json::array();
    if (const Json* ref = find(schema, "$ref")) {
      any.push_back(Json{{"not", document_.same(document_.resolve(schema, *ref))}});
      if (document_.ref_alone()) return Json{{"anyOf", any}};
    }
    for (const auto& [keyword, value] : schema.items()) {
      (void)document_.at(schema, keyword);
      negate_keyword(schema, keyword, any);
    }
    return any.empty() ? Json(false) : Json{{"anyOf", any}};
  });
}

void SchemaCompiler::negate_keyword(const Json& schema, const std::string& keyword, Json& any) {
  const Json& value = document_.at(schema, keyword);
  const auto is = [&](const char* name) { return keyword == name; };
  const auto add = [&](const char* type, const char* opposite, const Json& bound) {
    any.push_back(Json{{"type", type}, {opposite, bound}});
  };
  const auto parts = [&] {
    if (!value.is_array()) throw document_.invalid_at(schema, keyword, "expected an array, found {}", describe(value));
    Json made = Json::array();
    for (size_t i = 0; i < value.size(); ++i) made.push_back(Json{{"not", document_.same(document_.at(value, i))}});
    return made;
  };
  if (is("type")) {
    unsigned types = 0;
    if (value.is_array()) {
      for (const Json& name : value) types |= type_named(schema, name);
    } else {
      types = type_named(schema, value);
    }
    static constexpr std::pair<unsigned, const char*> kNames[] = {
        {kNull, "null"},     {kBoolean, "boolean"}, {kInteger, "integer"}, {kFractional, kFraction},
        {kString, "string"}, {kArray, "array"},     {kObject, "object"}};
    Json others = Json::array();
    for (const auto& [type, name] : kNames) {
      if ((types & type) == 0) others.push_back(name);
    }
    if (!others.empty()) any.push_back(Json{{"type", others}});
  } else if (is("enum") || is("const")) {
    const Json values = is("const") ? Json::array({value}) : value;
    if (!values.is_array() || std::ranges::any_of(values, [](const Json& v) { return v.is_structured(); }))
      throw document_.unsupported_at(schema, keyword, "`not` over arrays and objects is not supported");
    any.push_back(Json{{kNotEnum, values}});
  } else if (is(kNotEnum)) {
    any.push_back(Json{{"enum", value}});
  } else if (is("minimum") || is("maximum") || is("exclusiveMinimum") || is("exclusiveMaximum")) {
    if (!value.is_number())
      throw document_.unsupported_at(schema, keyword, "`not` over {} is not supported", describe(value));
    if (is("minimum")) add("number", "exclusiveMaximum", value);
    if (is("maximum")) add("number", "exclusiveMinimum", value);
    if (is("exclusiveMinimum")) add("number", "maximum", value);
    if (is("exclusiveMaximum")) add("number", "minimum", value);
  } else if (is("pattern")) {
    add("string", kNotPattern, value);
  } else if (is("minLength") || is("minItems") || is("minProperties")) {
    const uint32_t count = count_of(schema, keyword.c_str(), 0);
    const char* type = is("minLength") ? "string" : is("minItems") ? "array" : "object";
    const char* opposite = is("minLength") ? "maxLength" : is("minItems") ? "maxItems" : "maxProperties";
    if (count > 0) add(type, opposite, count - 1);
  } else if (is("maxLength") || is("maxItems") || is("maxProperties")) {
    const char* type = is("maxLength") ? "string" : is("maxItems") ? "array" : "object";
    const char* opposite = is("maxLength") ? "minLength" : is("maxItems") ? "minItems" : "minProperties";
    add(type, opposite, count_of(schema, keyword.c_str(), 0) + uint64_t{1});
  } else if (is("required")) {
    if (!value.is_array()) throw document_.invalid_at(schema, keyword, "expected an array, found {}", describe(value));
    for (const Json& name : value) {
      if (!name.is_string()) throw document_.invalid_at(schema, keyword, "expected strings, found {}", describe(name));
      Json absent = {{"type", "object"}};
      absent["properties"][name.get<std::string>()] = false;
      any.push_back(absent);
    }
  } else if (is("properties")) {
    if (!value.is_object())
      throw document_.invalid_at(schema, keyword, "expected an object, found {}", describe(value));
    for (const auto& [name, part] : value.items()) {
      Json other = {{"type", "object"}, {"required", Json::array({name})}};
      other["properties"][name] = Json{{"not", document_.same(document_.at(value, name))}};
      any.push_back(other);
    }
  } else if (is("allOf")) {
    for (Json& part : parts()) any.push_back(std::move(part));
  } else if (is("anyOf")) {
    any.push_back(Json{{"allOf", parts()}});
  } else if (is("not")) {
    any.push_back(document_.same(value));
  } else if (std::ranges::any_of(kNotNegated, is)) {
    throw document_.unsupported_at(schema, keyword, "`not` over this keyword is not supported");
  }
}

}  // namespace quire::grammar
