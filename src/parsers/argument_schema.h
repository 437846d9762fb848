// What a tool's schema says about an argument: for syntaxes that write values without types.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "json/parse.h"

namespace quire {

// The types of JSON that a schema allows, as a set.
struct ValueTypes {
  enum Type : uint8_t { kNull = 1, kBoolean = 2, kInteger = 4, kFraction = 8, kString = 16, kArray = 32, kObject = 64 };
  static constexpr uint8_t kAny = 127;

  uint8_t set = kAny;
  bool has(Type type) const { return (set & type) != 0; }
  bool has_type_of(const Json& value) const;
  // A string, or a string or null: written as it is, whatever it looks like.
  bool is_text() const { return has(kString) && (set & ~(kString | kNull)) == 0; }
};

// Follows type, enum, const, anyOf, oneOf, allOf, nullable and references within `root`. Other keywords, references that
// lead nowhere and nesting beyond a bound allow anything.
ValueTypes value_types(const Json& root, const Json& schema);

// The schema of the argument `key`; null: `parameters`, a tool's schema or null, says nothing about it.
const Json* argument_schema(const Json& parameters, std::string_view key);

// The texts of a schema for which value_types().is_text().
struct ArgumentTexts {
  bool any = false;  // any string
  bool null = false;
  std::vector<std::string> choices = {};
};
// Nothing: the schema asks for more than that, and `obstacle` names the keyword.
std::optional<ArgumentTexts> argument_texts(const Json& root, const Json& schema, std::string& obstacle);

// Keywords that do not concern the value.
bool is_annotation(std::string_view keyword);

}  // namespace quire
