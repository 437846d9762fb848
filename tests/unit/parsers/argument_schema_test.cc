// What schemas say about arguments that are written without types.
#include "parsers/argument_schema.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

using enum ValueTypes::Type;

int types(const char* schema) {
  static const Json root = Json::parse(R"({"$defs": {"name": {"type": "string"}, "loop": {"$ref": "#/$defs/loop"},
      "tree": {"anyOf": [{"$ref": "#/$defs/tree"}, {"$ref": "#/$defs/tree"}, {"type": "string"}]}}})");
  return value_types(root, Json::parse(schema)).set;
}

TEST(ValueTypes, AreThoseThatTheSchemaAllows) {
  constexpr int kText = kString | kNull;
  EXPECT_EQ(types(R"({"type": "string"})"), kString);
  EXPECT_EQ(types(R"({"type": ["null", "string"]})"), kText);
  EXPECT_EQ(types(R"({"type": "string", "nullable": true})"), kText);
  EXPECT_EQ(types(R"({"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}]})"), kText);
  EXPECT_EQ(types(R"({"oneOf": [{"$ref": "#/$defs/name"}, {"const": null}]})"), kText);
  EXPECT_EQ(types(R"({"allOf": [{"type": ["string", "integer"]}, {"enum": ["a", "b"]}]})"), kString);
  EXPECT_EQ(types(R"({"enum": ["a", null]})"), kText);
  EXPECT_EQ(types(R"({"const": "12"})"), kString);
  EXPECT_EQ(types(R"({"type": "string", "anyOf": [{"minLength": 1}, {"maxLength": 0}]})"), kString);
  EXPECT_EQ(types(R"({"type": "number"})"), kInteger | kFraction);
  EXPECT_EQ(types(R"({"anyOf": [{"type": "boolean"}, {"type": "array"}, {"type": "object"}]})"),
            kBoolean | kArray | kObject);
  for (const char* any :
       {"{}", "true", R"({"type": "text"})", R"({"$ref": "#/$defs/none"})", R"({"$ref": "other.json"})",
        R"({"$ref": "#/$defs/loop"})", R"({"$ref": 5})", R"({"anyOf": {}})"}) {
    EXPECT_EQ(types(any), ValueTypes::kAny) << any;
  }
  types(R"({"$ref": "#/$defs/tree"})");  // ends
}

TEST(ArgumentSchemas, AreFoundWhereToolsHaveThem) {
  const Json root = Json::parse(R"({"allOf": [{"properties": {"a": {"type": "string"}}}, {"$ref": "#/$defs/more"}],
      "additionalProperties": {"type": "null"}, "$defs": {"more": {"properties": {"b": {"type": "integer"}}}}})");
  EXPECT_EQ(*argument_schema(root, "a"), (Json{{"type", "string"}}));
  EXPECT_EQ(*argument_schema(root, "b"), (Json{{"type", "integer"}}));
  EXPECT_EQ(*argument_schema(root, "c"), (Json{{"type", "null"}}));
  EXPECT_EQ(argument_schema(Json(), "a"), nullptr);
  EXPECT_EQ(argument_schema(Json::parse(R"({"properties": 5, "allOf": 1, "additionalProperties": false})"), "a"),
            nullptr);
}

TEST(ArgumentTexts, AreAnyStringOrChoices) {
  const auto texts = [](const char* schema) {
    std::string obstacle;
    const Json root = Json::parse(R"({"$defs": {"kind": {"enum": ["a", "b"]}}})");
    const auto found = argument_texts(root, Json::parse(schema), obstacle);
    if (!found) return "not: " + obstacle;
    return (found->any ? "any" : Json(found->choices).dump()) + (found->null ? " or null" : "");
  };
  EXPECT_EQ(texts(R"({"type": "string", "description": "x", "default": "a"})"), "any");
  EXPECT_EQ(texts(R"({"anyOf": [{"type": "string"}, {"type": "null"}], "title": "T"})"), "any or null");
  EXPECT_EQ(texts(R"({"oneOf": [{"$ref": "#/$defs/kind"}, {"const": "c"}, {"type": "null"}]})"),
            R"(["a","b","c"] or null)");
  EXPECT_EQ(texts(R"({"allOf": [{"$ref": "#/$defs/kind"}]})"), R"(["a","b"])");
  EXPECT_EQ(texts(R"({"type": "string", "enum": ["a", null]})"), R"(["a"])");
  EXPECT_EQ(texts(R"({"type": ["string", "null"], "pattern": "^a"})"), "not: pattern");
  EXPECT_EQ(texts(R"({"anyOf": [{"type": "string", "maxLength": 3}, {"type": "null"}]})"), "not: maxLength");
  EXPECT_EQ(texts(R"({"oneOf": [{"type": "string"}, {"const": "c"}]})"), "not: oneOf");
}

}  // namespace
}  // namespace quire
