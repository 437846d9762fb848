#include "parsers/argument_schema.h"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace quire {
namespace {

// Into alternatives and references: recursive ones would multiply.
constexpr int kMaxNesting = 32, kMaxSteps = 4096;
constexpr std::string_view kAnnotations[] = {"title",    "description", "default",   "examples",
                                             "$comment", "readOnly",    "writeOnly", "deprecated"};

uint8_t types_named(const Json& name) {
  if (name == "string") return ValueTypes::kString;
  if (name == "null") return ValueTypes::kNull;
  if (name == "boolean") return ValueTypes::kBoolean;
  if (name == "integer") return ValueTypes::kInteger;
  if (name == "number") return ValueTypes::kInteger | ValueTypes::kFraction;
  if (name == "array") return ValueTypes::kArray;
  if (name == "object") return ValueTypes::kObject;
  return ValueTypes::kAny;
}

uint8_t type_of(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null:
      return ValueTypes::kNull;
    case Json::value_t::boolean:
      return ValueTypes::kBoolean;
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned:
      return ValueTypes::kInteger;
    case Json::value_t::number_float:
      return ValueTypes::kFraction;
    case Json::value_t::string:
      return ValueTypes::kString;
    case Json::value_t::array:
      return ValueTypes::kArray;
    default:
      return ValueTypes::kObject;
  }
}

const Json* member(const Json& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

uint8_t types_of_list(const Json& list, uint8_t (*type)(const Json&)) {
  if (!list.is_array()) return type(list);
  uint8_t set = 0;
  for (const Json& element : list) set |= type(element);
  return set;
}

// Walks through the schemas of a document, a bounded number of them.
class Walk {
 public:
  explicit Walk(const Json& root) : root_(root) {}

  uint8_t types(const Json& schema, int depth = 0) {
    if (!schema.is_object() || !enter(depth)) return ValueTypes::kAny;
    uint8_t set = ValueTypes::kAny;
    if (const Json* type = member(schema, "type")) set &= types_of_list(*type, types_named);
    if (const Json* nullable = member(schema, "nullable"); nullable && *nullable == true) set |= ValueTypes::kNull;
    if (const Json* value = member(schema, "const")) set &= type_of(*value);
    if (const Json* values = member(schema, "enum"); values && values->is_array()) {
      set &= types_of_list(*values, type_of);
    }
    for (const char* keyword : {"anyOf", "oneOf"}) {
      const Json* alternatives = member(schema, keyword);
      if (!alternatives || !alternatives->is_array()) continue;
      uint8_t any = 0;
      for (const Json& alternative : *alternatives) any |= types(alternative, depth + 1);
      set &= any;
    }
    if (const Json* parts = member(schema, "allOf"); parts && parts->is_array()) {
      for (const Json& part : *parts) set &= types(part, depth + 1);
    }
    if (const Json* target = referred(schema)) set &= types(*target, depth + 1);
    return set;
  }

  const Json* argument(const Json& schema, std::string_view key, int depth = 0) {
    if (!schema.is_object() || !enter(depth)) return nullptr;
    if (const Json* properties = member(schema, "properties")) {
      if (const Json* found = member(*properties, key)) return found;
    }
    for (const char* keyword : {"allOf", "anyOf", "oneOf"}) {
      const Json* parts = member(schema, keyword);
      if (!parts || !parts->is_array()) continue;
      for (const Json& part : *parts) {
        if (const Json* found = argument(part, key, depth + 1)) return found;
      }
    }
    const Json* target = referred(schema);
    return target ? argument(*target, key, depth + 1) : nullptr;
  }

  // Adds the texts of `schema`. False: `obstacle` says why not.
  bool add_texts(const Json& schema, ArgumentTexts& texts, std::string& obstacle, int depth = 0) {
    if (!schema.is_object() || !enter(depth)) return false;
    const Json *values = nullptr, *alternatives = nullptr, *target = nullptr;
    Json one;
    for (const auto& [keyword, value] : schema.items()) {
      if (keyword == "type" || keyword == "nullable" || is_annotation(keyword)) continue;
      obstacle = keyword;
      const bool second = values || alternatives || target;  // two of these would have to be intersected
      if (second || (keyword == "allOf" && value.size() != 1)) return false;
      if (keyword == "enum") {
        values = &value;
      } else if (keyword == "const") {
        values = &(one = Json::array({value}));
      } else if ((keyword == "anyOf" || keyword == "oneOf" || keyword == "allOf") && value.is_array()) {
        alternatives = &value;
      } else if (keyword == "$ref") {
        target = referred(schema);
        if (!target) return false;
      } else {
        return false;
      }
    }
    if (target) return add_texts(*target, texts, obstacle, depth + 1);
    if (alternatives) return add_alternatives(*alternatives, obstacle == "oneOf", texts, obstacle, depth + 1);
    const ValueTypes allowed{types(schema)};
    texts.null |= allowed.has(ValueTypes::kNull);
    if (!values) texts.any |= allowed.has(ValueTypes::kString);
    for (const Json& value : values ? *values : Json::array()) {
      if (value.is_string() && allowed.has(ValueTypes::kString)) texts.choices.push_back(value);
    }
    return true;
  }

 private:
  bool enter(int depth) { return depth < kMaxNesting && ++steps_ <= kMaxSteps; }

  // Of oneOf only one may hold.
  bool add_alternatives(const Json& alternatives, bool one, ArgumentTexts& texts, std::string& obstacle, int depth) {
    int strings = 0;
    for (const Json& alternative : alternatives) {
      strings += ValueTypes{types(alternative)}.has(ValueTypes::kString);
      if (!add_texts(alternative, texts, obstacle, depth)) return false;
    }
    if (!one || strings < 2 || !texts.any) return true;
    obstacle = "oneOf";
    return false;
  }

  // What "#/$defs/City" refers to; null: nothing.
  const Json* referred(const Json& schema) const {
    const Json* reference = member(schema, "$ref");
    if (!reference || !reference->is_string()) return nullptr;
    const auto& text = reference->get_ref<const std::string&>();
    if (!text.starts_with('#')) return nullptr;
    try {
      const Json::json_pointer pointer(text.substr(1));
      return root_.contains(pointer) ? &root_.at(pointer) : nullptr;
    } catch (const Json::exception&) {
      return nullptr;
    }
  }

  const Json& root_;
  int steps_ = 0;
};

}  // namespace

bool is_annotation(std::string_view keyword) {
  return std::ranges::find(kAnnotations, keyword) != std::end(kAnnotations);
}

bool ValueTypes::has_type_of(const Json& value) const {
  if ((set & type_of(value)) != 0) return true;
  return value.is_number_float() && has(kInteger) && std::trunc(value.get<double>()) == value.get<double>();
}

ValueTypes value_types(const Json& root, const Json& schema) { return {Walk(root).types(schema)}; }

const Json* argument_schema(const Json& parameters, std::string_view key) {
  if (const Json* found = Walk(parameters).argument(parameters, key)) return found;
  const Json* others = member(parameters, "additionalProperties");
  return others && others->is_object() ? others : nullptr;
}

std::optional<ArgumentTexts> argument_texts(const Json& root, const Json& schema, std::string& obstacle) {
  ArgumentTexts texts;
  if (!Walk(root).add_texts(schema, texts, obstacle)) return std::nullopt;
  if (texts.any) texts.choices.clear();
  return texts;
}

}  // namespace quire
