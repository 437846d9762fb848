// Keywords that become schemas of other keywords.
#include <algorithm>
#include <set>

#include "base/text/quote.h"
#include "grammar/schema/schema_compiler.h"

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
                                       "unevaluatedProperties",
                                       "if",
                                       "oneOf",
                                       "dependencies",
                                       "dependentRequired",
                                       "dependentSchemas"};

}  // namespace

// `not`: one of the keywords of a schema does not hold, so it becomes a choice of schemas, a keyword each.
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

// {"a": ["b"]} or {"a": SCHEMA}: a is absent, or the rest holds.
const Json& SchemaCompiler::dependency(const Json& schema, std::string_view keyword) {
  const Json& map = document_.at(schema, keyword);
  if (!map.is_object()) throw document_.invalid_at(schema, keyword, "expected an object, found {}", describe(map));
  return document_.derived(map, Derivation::kDependency, [&] {
    Json all = Json::array();
    for (const auto& [name, value] : map.items()) {
      if (!value.is_array() && !value.is_object() && !value.is_boolean())
        throw document_.invalid_at(schema, keyword, "expected arrays or schemas, found {}", describe(value));
      Json present = {{"required", Json::array({name})}};
      if (value.is_array()) {
        for (const Json& other : value) present["required"].push_back(other);
      } else {
        present["allOf"] = Json::array({document_.same(document_.at(map, name))});
      }
      Json absent = Json::object();
      absent["properties"][name] = false;
      all.push_back(Json{{"anyOf", Json::array({absent, present})}});
    }
    return all.empty() ? Json(true) : Json{{"allOf", all}};
  });
}

const Json& SchemaCompiler::conditional(const Json& schema) {
  return document_.derived(schema, Derivation::kConditional, [&] {
    const Json condition = document_.same(document_.at(schema, "if"));
    Json yes = Json::array({condition}), no = Json::array({Json{{"not", condition}}});
    if (const Json* then = find(schema, "then")) yes.push_back(document_.same(*then));
    if (const Json* otherwise = find(schema, "else")) no.push_back(document_.same(*otherwise));
    return Json{{"anyOf", Json::array({Json{{"allOf", yes}}, Json{{"allOf", no}}})}};
  });
}

const Json& SchemaCompiler::alternatives_of_values(const Json& schema, std::string_view keyword) {
  const Json& values = document_.at(schema, keyword);
  return document_.derived(values, Derivation::kAlternatives, [&] {
    if (keyword == "const") return document_.same(exactly(values));
    Json any = Json::array(), scalars = Json::array();
    for (size_t i = 0; i < values.size(); ++i) {
      if (values[i].is_structured()) {
        any.push_back(document_.same(exactly(document_.at(values, i))));
      } else {
        scalars.push_back(values[i]);
      }
    }
    if (!scalars.empty()) any.push_back(Json{{"enum", scalars}});
    return Json{{"anyOf", any}};
  });
}

// The schema of one array or object.
const Json& SchemaCompiler::exactly(const Json& value) {
  return document_.derived(value, Derivation::kExactly, [&] {
    Json made;
    if (value.is_array()) {
      made = {{"type", "array"}, {"minItems", value.size()}, {"maxItems", value.size()}};
      for (const Json& element : value) made["prefixItems"].push_back(Json{{"const", element}});
    } else {
      made = {{"type", "object"}, {"additionalProperties", false}};
      made["required"] = Json::array();
      for (const auto& [name, element] : value.items()) {
        made["properties"][name] = Json{{"const", element}};
        made["required"].push_back(name);
      }
    }
    return made;
  });
}

namespace {

void add_all(std::vector<std::string>& to, const std::vector<std::string>& from) {
  for (const std::string& name : from) {
    if (std::ranges::find(to, name) == to.end()) to.push_back(name);
  }
}

}  // namespace

// Both evaluated at once; conditions hold at once.
SchemaCompiler::Evaluated SchemaCompiler::both(const Evaluated& a, const Evaluated& b) {
  Evaluated made = a;
  made.conditions.insert(made.conditions.end(), b.conditions.begin(), b.conditions.end());
  add_all(made.names, b.names);
  add_all(made.patterns, b.patterns);
  made.all = made.all || b.all;
  return made;
}

// The properties that a schema evaluates, by which of its alternatives hold. A result may have less than an instance has
// evaluated: such an instance has another result, too, or needs no more.
std::vector<SchemaCompiler::Evaluated> SchemaCompiler::evaluated_by(const Json& schema, bool outermost, int depth) {
  std::vector<Evaluated> made{{}};
  if (!schema.is_object()) return made;
  if (depth > limits_.depth) s_.budget().exhausted();
  s_.budget().spend(20);
  const auto combine = [&](const std::vector<Evaluated>& parts) {
    std::vector<Evaluated> product;
    for (const Evaluated& one : made) {
      for (const Evaluated& part : parts) product.push_back(both(one, part));
    }
    made = std::move(product);
    check_combinations(schema, made.size());
  };
  if (const Json* ref = find(schema, "$ref")) {
    combine(evaluated_by(document_.resolve(schema, *ref), false, depth + 1));
    if (document_.ref_alone()) return made;
  }
  Evaluated own;
  for (const char* keyword : {"properties", "patternProperties"}) {
    const Json* map = find(schema, keyword);
    if (map == nullptr || !map->is_object()) continue;  // an error elsewhere
    auto& to = std::string_view(keyword) == "properties" ? own.names : own.patterns;
    for (const auto& [name, value] : map->items()) to.push_back(name);
  }
  own.all = schema.contains("additionalProperties") || (!outermost && schema.contains("unevaluatedProperties"));
  combine({own});
  const Json* all = find(schema, "allOf");
  for (size_t i = 0; all != nullptr && all->is_array() && i < all->size(); ++i)
    combine(evaluated_by(document_.at(*all, i), false, depth + 1));
  for (const char* keyword : {"anyOf", "oneOf"}) {
    if (find(schema, keyword) != nullptr) combine(evaluated_by_alternatives(schema, keyword, depth));
  }
  if (find(schema, "if") != nullptr) combine(evaluated_by_conditional(schema, depth));
  for (const char* keyword : {"dependentSchemas", "dependencies"}) {
    const Json* map = find(schema, keyword);
    if (map == nullptr || !map->is_object()) continue;
    for (const auto& [name, value] : map->items()) {
      if (!value.is_object()) continue;
      std::vector<Evaluated> results = evaluated_under(document_.at(*map, name), depth);
      for (Evaluated& result : results) result.conditions.push_back(Json{{"required", Json::array({name})}});
      results.emplace_back();  // the property is absent
      combine(results);
    }
  }
  return made;
}

void SchemaCompiler::check_combinations(const Json& schema, size_t count) {
  constexpr size_t kMost = 64;
  if (count > kMost)
    throw document_.unsupported_at(schema, "unevaluatedProperties", "depends on too many combinations of alternatives");
}

// The condition is the schema itself.
std::vector<SchemaCompiler::Evaluated> SchemaCompiler::evaluated_under(const Json& schema, int depth) {
  std::vector<Evaluated> results = evaluated_by(schema, false, depth + 1);
  for (Evaluated& result : results) result.conditions.push_back(document_.same(schema));
  return results;
}

std::vector<SchemaCompiler::Evaluated> SchemaCompiler::evaluated_by_alternatives(const Json& schema,
                                                                                 const char* keyword, int depth) {
  const Json& parts = document_.at(schema, keyword);
  std::vector<Evaluated> results;
  bool some_evaluate_nothing = !parts.is_array() || parts.empty();
  for (size_t i = 0; parts.is_array() && i < parts.size(); ++i) {
    const std::vector<Evaluated> of_part = evaluated_under(document_.at(parts, i), depth);
    if (std::ranges::all_of(of_part, &Evaluated::is_empty)) {
      some_evaluate_nothing = true;
      continue;
    }
    const size_t others = std::string_view(keyword) == "anyOf" ? results.size() : 0;
    check_combinations(schema, results.size() + of_part.size() * (others + 1));
    for (size_t other = 0; other < others; ++other) {  // several hold
      for (const Evaluated& result : of_part) results.push_back(both(results[other], result));
    }
    results.insert(results.end(), of_part.begin(), of_part.end());
  }
  if (some_evaluate_nothing) results.emplace_back();
  return results;
}

std::vector<SchemaCompiler::Evaluated> SchemaCompiler::evaluated_by_conditional(const Json& schema, int depth) {
  const Json& condition = document_.at(schema, "if");
  const Json* then = find(schema, "then");
  const Json* otherwise = find(schema, "else");
  std::vector<Evaluated> results{{}};
  for (const Evaluated& one : evaluated_under(condition, depth)) {
    if (then == nullptr) {
      results.push_back(one);
      continue;
    }
    for (const Evaluated& more : evaluated_under(*then, depth)) results.push_back(both(one, more));
  }
  if (otherwise == nullptr) return results;
  for (Evaluated& one : evaluated_under(*otherwise, depth)) {
    if (one.is_empty()) continue;
    one.conditions.push_back(Json{{"not", document_.same(condition)}});
    results.push_back(one);
  }
  return results;
}

// Properties that nothing else in the schema evaluates must match the keyword's own schema.
const Json& SchemaCompiler::unevaluated(const Json& schema) {
  const Json& others = document_.at(schema, "unevaluatedProperties");
  return document_.derived(others, Derivation::kUnevaluated, [&] {
    Json any = Json::array();
    for (const Evaluated& result : evaluated_by(schema, true, 0)) {
      Json closed = Json::object();
      for (const std::string& name : result.names) closed["properties"][name] = true;
      for (const std::string& pattern : result.patterns) closed["patternProperties"][pattern] = true;
      if (!result.all) closed["additionalProperties"] = others.is_boolean() ? others : document_.same(others);
      Json all = result.conditions;
      all.push_back(closed);
      any.push_back(Json{{"allOf", all}});
    }
    return any.size() == 1 ? any[0] : Json{{"anyOf", any}};
  });
}

}  // namespace quire::grammar
