#include "grammar/schema/closed_schema.h"

#include <gtest/gtest.h>

#include "json/parse.h"

namespace quire::grammar {
namespace {

Json closed(const char* schema) { return closed_schema(Json::parse(schema)); }

TEST(ClosedSchema, ClosesObjectsThatListTheirProperties) {
  EXPECT_EQ(closed(R"({"type": "object", "properties": {"a": {"type": "array", "items": {"properties": {"b": {}}}},
                       "c": {"$ref": "#/$defs/d"}}, "required": ["a"], "$defs": {"d": {"properties": {}}}})"),
            Json::parse(R"({"type": "object", "properties": {"a": {"type": "array", "items": {"properties": {"b": {}},
                "additionalProperties": false}}, "c": {"$ref": "#/$defs/d"}}, "required": ["a"],
                "$defs": {"d": {"properties": {}, "additionalProperties": false}}, "additionalProperties": false})"));
  EXPECT_EQ(closed(R"({"anyOf": [{"properties": {"a": {}}}, {"type": "null"}]})"),
            Json::parse(R"({"anyOf": [{"properties": {"a": {}}, "additionalProperties": false}, {"type": "null"}]})"));
}

TEST(ClosedSchema, ClosesNextToUnevaluatedProperties) {
  EXPECT_EQ(closed(R"({"properties": {"a": {"properties": {"b": {}}}}, "unevaluatedProperties": false})"),
            Json::parse(R"({"properties": {"a": {"properties": {"b": {}}, "additionalProperties": false}},
                            "unevaluatedProperties": false})"));
}

TEST(ClosedSchema, LeavesWhatSpeaksOfOtherProperties) {
  for (const char* schema :
       {R"({"type": "object"})", R"({"properties": {"a": {}}, "additionalProperties": true})",
        R"({"properties": {"a": {}}, "patternProperties": {"^x": {}}})",
        R"({"properties": {"a": {}}, "unevaluatedProperties": false})",
        R"({"properties": {"a": {}}, "minProperties": 2})", R"({"properties": {"a": {}}, "required": ["b"]})",
        R"({"properties": {"a": {}}, "$ref": "#/$defs/x"})",
        R"({"properties": {"a": {}}, "anyOf": [{"required": ["b"]}]})", R"(true)", R"([1])"}) {
    EXPECT_EQ(closed(schema), Json::parse(schema));
  }
}

// {"a": 5} matches the first alternative alone, if it is closed, but both as they are.
TEST(ClosedSchema, LeavesSchemasWhoseMeaningItWouldWiden) {
  for (const char* schema : {R"({"oneOf": [{"properties": {"b": {}}}, {"properties": {"a": {}}}]})",
                             R"({"properties": {"x": {"properties": {"a": {}}}}, "not": {"properties": {"b": {}}}})",
                             R"({"allOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}}]})",
                             R"({"properties": {"deep": {"items": {"if": {"properties": {"b": {}}}}}}})"}) {
    EXPECT_EQ(closed(schema), Json::parse(schema));
  }
}

// Names of properties are no keywords.
TEST(ClosedSchema, KnowsNamesFromKeywords) {
  EXPECT_TRUE(closed(R"({"properties": {"not": {}, "allOf": {}}})").contains("additionalProperties"));
  EXPECT_EQ(closed(R"({"properties": {"a": {"enum": [{"properties": {}}]}}})")["properties"]["a"],
            Json::parse(R"({"enum": [{"properties": {}}]})"));
}

}  // namespace
}  // namespace quire::grammar
