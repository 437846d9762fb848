// Each keyword: instances that a schema accepts, and others.
#include "grammar/schema/json_schema.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "accepts.h"
#include "error_of.h"

namespace quire::grammar {
namespace {

struct SchemaCase {
  const char* schema;
  std::vector<const char*> yes, no;
};

void check_schemas(std::span<const SchemaCase> cases) {
  for (const SchemaCase& c : cases) {
    GrammarPtr grammar;
    ASSERT_EQ(error_of([&] { grammar = compile_json_schema(nlohmann::ordered_json::parse(c.schema)); }), "")
        << c.schema;
    for (const char* text : c.yes) EXPECT_TRUE(accepts(grammar, text)) << c.schema << "\nshould accept " << text;
    for (const char* text : c.no) EXPECT_FALSE(accepts(grammar, text)) << c.schema << "\nshould refuse " << text;
  }
}

TEST(JsonSchema, Types) {
  check_schemas(std::vector<SchemaCase>{
      {"{}",
       {"null", "1", "\"x\"", "[1, {\"a\": []}]", "{\"a\": 1, \"b\": {}}", "-1.5e-07"},
       {"", "nul", "01", "[1,]", "{a: 1}", "'x'"}},
      {"true", {"[]"}, {""}},
      {R"({"type": "null"})", {"null"}, {"0", "\"null\""}},
      {R"({"type": "boolean"})", {"true", "false"}, {"1", "True"}},
      {R"({"type": "integer"})",
       {"0", "-12", "12345678901234567890123"},
       {"1.5", "01", "1e-05", "+1", "--1", "", "3.0", "1e+22", "12e1", "-0", "5.", "1E2"}},
      {R"({"type": "number"})", {"0", "-1.25", "1E5", "-0.0"}, {".5", "1.", "1e", "NaN"}},
      {R"({"type": ["string", "null"]})", {"\"\"", "null"}, {"1"}},
      {R"({"type": "object"})", {"{}", "{\"a\": null}"}, {"[]", "{\"a\"}"}},
      {R"({"type": "array"})", {"[]", "[1, \"a\"]"}, {"{}", "[1 2]"}},
  });
}

TEST(JsonSchema, WhitespaceIsThatOfUsualLayouts) {
  const char* schema =
      R"({"type": "object", "properties": {"a": {"type": "array", "items": {"type": "integer"}}}, "required": ["a"]})";
  for (const char* text :
       {"{\"a\":[1,2]}", "{\"a\": [1, 2]}", "{ \"a\" : [ 1 , 2 ] }", "{\n  \"a\": [\n    1,\n    2\n  ]\n}",
        "{\n    \"a\": [\n        1,\n        2\n    ]\n}", "{\n \"a\": [\n  1,\n  2\n ]\n}", "{\r\n\t\"a\": []\r\n}",
        "{\n\t\"a\": [\n\t\t1\n\t]\n}", "{\n\"a\": [\n1,\n2\n]\n}", "{\n  \"a\": [1, 2]\n}", "{\"a\": [ ]}"})
    EXPECT_TRUE(schema_accepts(schema, text)) << text;
  for (const char* text :
       {"{  \"a\": []}", "{\n\n\"a\": []}", " {\"a\": []}", "{\"a\": []} ", "{\"a\"\v: []}", "{\n     \"a\": []}",
        "{\n\t\t\"a\": []}", "{\n \t\"a\": []}", "{\"a\":\n  []}", "{\"a\"\n: []}", "{\"a\": [1\n, 2]}",
        "{\"a\": [1,  2]}", "{\"a\": [\n          1]}", "{\"a\": [\n]}", "{\"a\": []\n  }", "{\"a\": [1\n      ]}"})
    EXPECT_FALSE(schema_accepts(schema, text)) << text;
}

// The longest run of blanks that may follow, wherever the text is in strings or between tokens.
TEST(JsonSchema, BlanksAreBoundedByDepth) {
  const GrammarPtr any = compile_json_object();
  std::string open = "{\"a\":";
  for (size_t depth = 2; depth < 50; ++depth) {
    open += "[";
    for (const size_t width : {1, 2, 3, 4}) {
      const size_t blanks = std::min<size_t>(depth, kDeepestIndentation) * width;
      Matcher matcher(Vocabulary::of_bytes(), any);
      EXPECT_TRUE(matcher.advance_bytes(open + "\n" + std::string(blanks, ' ') + "1")) << depth;
      Matcher other(Vocabulary::of_bytes(), any);
      EXPECT_FALSE(other.advance_bytes(open + "\n" + std::string(4 * blanks + 1, ' '))) << depth;
    }
  }
}

TEST(JsonSchema, BlanksWithinStringsAreText) {
  EXPECT_TRUE(
      schema_accepts(R"({"type": "array", "items": {"type": "string"}})", "[\"a" + std::string(50, ' ') + "\"]"));
}

TEST(JsonSchema, EnumAndConst) {
  check_schemas(std::vector<SchemaCase>{
      {R"({"enum": ["a", 1, null, true]})", {"\"a\"", "1", "null", "true"}, {"\"b\"", "false", "2", "1.0"}},
      {R"({"type": "string", "enum": ["a", 1]})", {"\"a\""}, {"1"}},
      {R"({"enum": ["ab", "abc"], "maxLength": 2})", {"\"ab\""}, {"\"abc\""}},
      {R"({"const": {"a": [1, false]}})", {"{\"a\": [1, false]}"}, {"{\"a\": [1, 0]}", "{}", "{\"a\": [1]}"}},
      {R"({"enum": [[], {"x": 1, "y": 2}, 3]})", {"[]", "{\"y\": 2, \"x\": 1}", "3"}, {"[1]", "{\"x\": 1}"}},
      {R"({"const": "h\u00e9"})", {"\"h\xC3\xA9\"", "\"h\\u00e9\""}, {"\"he\""}},
      {R"({"const": 0})", {"0"}, {"false", "0.5", "-0", "0.0"}},
      {R"({"const": 5.0})", {"5"}, {"5.0", "5e0"}},
      {R"({"type": "integer", "const": 1e20})", {"100000000000000000000"}, {"1e+20", "1e20"}},
      {R"({"const": 1e30})", {"1e+30", "1e30", "1000000000000000000000000000000"}, {"1e31"}},
      {R"({"enum": [0.5, -3]})", {"0.5", "-3"}, {"-3.0", "3"}},
      {R"({"const": 1e-7})", {"1e-07", "1e-7", "0.0000001"}, {"1e-06"}},
      {R"({"enum": [1, 2], "minimum": 2})", {"2"}, {"1"}},
  });
}

TEST(JsonSchema, Numbers) {
  check_schemas(std::vector<SchemaCase>{
      {R"({"type": "integer", "minimum": -5, "maximum": 120})",
       {"-5", "0", "7", "99", "100", "120"},
       {"-6", "121", "1000", "1e+03", "120.0", "1.2e2", "-0"}},
      {R"({"type": "integer", "exclusiveMinimum": 9, "exclusiveMaximum": 11})", {"10"}, {"9", "11", "1"}},
      {R"({"type": "number", "minimum": 0.5, "maximum": 10})",
       {"0.5", "0.51", "1", "9.99", "10", "10.0"},
       {"0.4999", "10.01", "0", "-1", "5e-01x"}},
      {R"({"type": "number", "exclusiveMinimum": 0})", {"0.001", "1e-07", "5"}, {"0", "0.0", "-0.0", "-1"}},
      {R"({"type": "number", "maximum": -1.5})", {"-1.5", "-2", "-1e+22"}, {"-1.49", "0", "1", "-1e-07"}},
      {R"({"type": "number", "minimum": 1e-7})", {"1e-07", "1.5e-07", "0.0000001", "1"}, {"1e-08", "9.9e-08"}},
      {R"({"type": "number", "maximum": 1e20})",
       {"1e+20", "99999999999999999999", "-5"},
       {"1.1e+20", "100000000000000000001", "1e+21"}},
      {R"({"type": "number", "multipleOf": 0.01})", {"1.23", "5", "0.10"}, {"1.234", "0.001"}},
      {R"({"type": "integer", "multipleOf": 5, "minimum": 1})", {"5", "10", "115"}, {"0", "3", "11", "5.0"}},
      {R"({"type": "number", "multipleOf": 1})", {"5", "-3"}, {"5.0", "5.5"}},
      {R"({"type": ["integer", "null"]})", {"5", "null"}, {"5.0", "5e1"}},
      {R"({"type": "number", "allOf": [{"type": "integer"}]})", {"5"}, {"5.0"}},
      {R"({"allOf": [{"type": "number", "maximum": 9}, {"$ref": "#/$defs/n"}], "$defs": {"n": {"type": ["integer", "string"]}}})",
       {"5"},
       {"5.0", "9e0"}},
      {R"({"anyOf": [{"type": "integer"}, {"type": "string"}]})", {"5", "\"5.0\""}, {"5.0"}},
      {R"({"type": "array", "items": {"type": "integer"}})", {"[5, 12]"}, {"[5.0]", "[12e1]"}},
      {R"({"type": "number"})", {"5.0", "12e1"}, {}},
      {R"({"minimum": 5, "exclusiveMinimum": true})", {"6", "5.1", "\"x\""}, {"5", "4"}},  // draft 4
      {R"({"allOf": [{"minimum": 5}, {"maximum": 6}], "type": "integer"})", {"5", "6"}, {"4", "7"}},
  });
}

TEST(JsonSchema, Strings) {
  check_schemas(std::vector<SchemaCase>{
      {R"({"type": "string"})",
       {"\"\"", "\"a\\n\\u00e9\\\"\"", "\"\xF0\x9F\x98\x80\"", "\"\\ud83d\\ude00\""},
       {"\"\n\"", "\"\\x\"", "\"\\ud83d\"", "\"a", "\"\xC3\""}},
      {R"({"type": "string", "minLength": 2, "maxLength": 3})",
       {"\"ab\"", "\"abc\"", "\"\\n\\n\"", "\"\xF0\x9F\x98\x80x\"", "\"\\ud83d\\ude00x\""},
       {"\"a\"", "\"abcd\"", "\"\xF0\x9F\x98\x80\""}},
      {R"({"type": "string", "pattern": "^a+$"})", {"\"a\"", "\"aaa\""}, {"\"\"", "\"b\"", "\"ab\""}},
      {R"({"type": "string", "pattern": "b"})", {"\"abc\"", "\"b\""}, {"\"a\""}},
      {R"({"type": "string", "pattern": "^[a-z]*$", "maxLength": 2})", {"\"\"", "\"ab\""}, {"\"abc\"", "\"A\""}},
      {R"({"type": "string", "pattern": "\\d", "allOf": [{"pattern": "x"}]})",
       {"\"x1\"", "\"1x\""},
       {"\"x\"", "\"1\""}},
  });
}

TEST(JsonSchema, Formats) {
  const auto format = [](const char* name) { return std::string(R"({"type": "string", "format": ")") + name + "\"}"; };
  const std::vector<std::tuple<const char*, std::vector<const char*>, std::vector<const char*>>> cases = {
      {"date",
       {"2024-02-29", "2023-12-31", "2000-02-29"},
       {"2023-02-29", "1900-02-29", "2023-04-31", "2023-1-1", "2023-13-01"}},
      {"time", {"23:59:59Z", "00:00:00.25+01:30", "23:59:60Z"}, {"24:00:00Z", "12:00:00", "12:60:00Z", "12:00:60Z"}},
      {"date-time", {"2024-01-01T00:00:00Z", "2024-01-01t10:00:00-08:00"}, {"2024-01-01", "2024-01-01 00:00:00Z"}},
      {"duration", {"P1D", "PT5M", "P1Y2M3DT4H5M6S", "P4W"}, {"P", "PT", "P1", "1D", "P1DT", "P1W2D"}},
      {"uuid",
       {"123e4567-e89b-12d3-a456-426655440000"},
       {"123e4567e89b12d3a456426655440000", "g23e4567-e89b-12d3-a456-426655440000"}},
      {"ipv4", {"0.0.0.0", "255.1.20.99"}, {"256.0.0.1", "1.2.3", "01.2.3.4", "1.2.3.4.5"}},
      {"ipv6",
       {"::", "::1", "1:2:3:4:5:6:7:8", "fe80::1", "::ffff:1.2.3.4", "1::8"},
       {"1:2:3:4:5:6:7", ":::", "1::2::3", "12345::", "1:2:3:4:5:6:7:8:9"}},
      {"hostname", {"a", "example.com", "x-1.y"}, {"", "-a", "a-", "a..b", "a_b"}},
      {"email", {"a@b.c", "x.y+z@example.org", "a@[127.0.0.1]"}, {"a", "@b", "a@", "a..b@c", "a b@c"}},
      {"uri",
       {"http://a/b?c#d", "mailto:x@y", "urn:a:b", "http://[::1]:80/"},
       {"/a", "a", "http://a b", "http://[::1", "1x:y"}},
      {"uri-reference", {"/a", "a/b", "", "#x", "http://a"}, {"a b", "\\\\\\\\a", "%zz"}},
      {"json-pointer", {"", "/a/0", "/~0~1"}, {"a", "/~2"}},
      {"relative-json-pointer", {"0", "1/a", "2#"}, {"/a", "01", "-1"}},
  };
  for (const auto& [name, yes, no] : cases) {
    const GrammarPtr grammar = compile_json_schema(nlohmann::ordered_json::parse(format(name)));
    for (const char* text : yes) EXPECT_TRUE(accepts(grammar, "\"" + std::string(text) + "\"")) << name << " " << text;
    for (const char* text : no) EXPECT_FALSE(accepts(grammar, "\"" + std::string(text) + "\"")) << name << " " << text;
  }
}

TEST(JsonSchema, Arrays) {
  check_schemas(std::vector<SchemaCase>{
      {R"({"type": "array", "items": {"type": "integer"}})",
       {"[]", "[1]", "[1, 2]", "[1,2]"},
       {"[\"a\"]", "[1,]", "[,1]"}},
      {R"({"type": "array", "minItems": 2, "maxItems": 3})", {"[1, 2]", "[1, 2, 3]"}, {"[]", "[1]", "[1, 2, 3, 4]"}},
      {R"({"type": "array", "maxItems": 0})", {"[]"}, {"[1]"}},
      {R"({"prefixItems": [{"type": "integer"}, {"type": "string"}], "items": false})",
       {"[]", "[1]", "[1, \"a\"]"},
       {"[\"a\"]", "[1, \"a\", 2]"}},
      {R"({"items": [{"type": "integer"}], "additionalItems": {"type": "null"}})",
       {"[]", "[1, null, null]"},
       {"[null]", "[1, 1]"}},
      {R"({"prefixItems": [{"type": "integer"}], "items": {"type": "null"}, "minItems": 3, "type": "array"})",
       {"[1, null, null]"},
       {"[1, null]", "[1]"}},
      {R"({"prefixItems": [true, false], "type": "array"})", {"[]", "[1]"}, {"[1, 2]"}},
      {R"({"type": "array", "contains": {"const": 5}})", {"[5]", "[1, 5, 2]", "[5, 5]"}, {"[]", "[1]"}},
      {R"({"type": "array", "items": false})", {"[]"}, {"[1]"}},
      {R"({"type": "array", "uniqueItems": true, "maxItems": 1})", {"[]", "[1]"}, {"[1, 1]"}},
      {R"({"type": "array", "uniqueItems": false})", {"[1, 1]"}, {}},
  });
}

TEST(JsonSchema, Objects) {
  check_schemas(std::vector<SchemaCase>{
      {R"({"properties": {"a": {"type": "integer"}, "b": true}, "required": ["a"], "additionalProperties": false, "type": "object"})",
       {"{\"a\": 1}", "{\"a\": 1, \"b\": null}"},
       {"{}", "{\"b\": 1}", "{\"a\": 1, \"c\": 1}", "{\"a\": 1,}", "{\"a\": 1, \"a\": 1}",
        "{\"b\": 1, \"a\": 1, \"b\": 1}"}},
      {R"({"properties": {"a": {"type": "integer"}}, "type": "object"})",
       {"{}", "{\"b\": 1}", "{\"a\": 1, \"b\": 1}", "{\"b\": 1, \"a\": 1}", "{\"aa\": \"x\"}"},
       {"{\"a\": \"x\"}", "{\"\\u0061\": \"x\"}"}},
      {R"({"properties": {"x": true, "y": true, "z": true}, "required": ["z", "x"], "additionalProperties": false})",
       {"{\"x\": 1, \"z\": 1}", "{\"x\": 1, \"y\": 2, \"z\": 1}", "{\"z\": 1, \"x\": 1, \"y\": 2}",
        "{\"y\": 2, \"x\": 1, \"z\": 1}"},
       {"{\"z\": 1}", "{\"z\": 1, \"x\": 1, \"z\": 1}"}},
      {R"({"additionalProperties": {"type": "integer"}, "type": "object"})", {"{}", "{\"q\": 1}"}, {"{\"q\": null}"}},
      {R"({"required": ["a"], "type": "object"})", {"{\"a\": 1}", "{\"b\": 1, \"a\": 2}"}, {"{}", "{\"b\": 1}"}},
      {R"({"patternProperties": {"^i_": {"type": "integer"}}, "additionalProperties": {"type": "string"}, "type": "object"})",
       {"{\"i_x\": 1}", "{\"s\": \"t\"}", "{\"i_\": 1, \"s\": \"\"}"},
       {"{\"i_x\": \"1\"}", "{\"s\": 1}"}},
      {R"({"properties": {"ab": {"maximum": 5}}, "patternProperties": {"b": {"type": "integer"}}, "type": "object"})",
       {"{\"ab\": 5}", "{\"b\": 9}"},
       {"{\"ab\": 6}", "{\"ab\": \"x\"}", "{\"xb\": null}"}},
      {R"({"patternProperties": {"a": {"minimum": 1}, "b": {"maximum": 9}}, "type": "object"})",
       {"{\"ab\": 5}", "{\"a\": 10}"},
       {"{\"ab\": 10}", "{\"a\": 0}"}},
      {R"({"propertyNames": {"pattern": "^[a-z]+$", "maxLength": 3}, "type": "object"})",
       {"{}", "{\"abc\": 1}"},
       {"{\"abcd\": 1}", "{\"A\": 1}"}},
      {R"({"minProperties": 1, "maxProperties": 2, "type": "object"})",
       {"{\"a\": 1}", "{\"a\": 1, \"b\": 2}"},
       {"{}", "{\"a\": 1, \"b\": 2, \"c\": 3}"}},
      {R"({"properties": {"a": true, "b": true, "c": true}, "additionalProperties": false, "minProperties": 2, "type": "object"})",
       {"{\"a\": 1, \"c\": 2}", "{\"a\": 1, \"b\": 2, \"c\": 3}"},
       {"{}", "{\"b\": 1}"}},
      {R"({"properties": {"a": true, "b": true}, "maxProperties": 1, "type": "object"})",
       {"{}", "{\"b\": 1}", "{\"x\": 1}"},
       {"{\"a\": 1, \"b\": 1}", "{\"x\": 1, \"a\": 1}"}},
      {R"({"properties": {"n\u00e9": {"type": "integer"}, "q\"": true}, "type": "object"})",
       {"{\"n\xC3\xA9\": 1}", "{\"n\\u00e9\": 1, \"q\\\"\": 0}"},
       {"{\"n\\u00e9\": null}", "{\"n\xC3\xA9\": \"\"}"}},
      {R"({"properties": {"a": false}, "type": "object"})", {"{}", "{\"b\": 1}"}, {"{\"a\": 1}"}},
  });
}

TEST(JsonSchema, Combinations) {
  check_schemas(std::vector<SchemaCase>{
      {R"({"anyOf": [{"type": "integer"}, {"type": "string", "maxLength": 1}]})", {"1", "\"a\""}, {"\"ab\"", "null"}},
      {R"({"type": "integer", "anyOf": [{"minimum": 10}, {"maximum": 0}]})", {"10", "0", "-5"}, {"5"}},
      {R"({"oneOf": [{"type": "integer"}, {"minimum": 2}]})", {"1", "2.5", "\"x\""}, {"3", "1.5"}},
      {R"({"oneOf": [{"required": ["a"]}, {"required": ["b"]}], "type": "object"})",
       {"{\"a\": 1}", "{\"b\": 1}"},
       {"{}", "{\"a\": 1, \"b\": 1}"}},
      {R"({"oneOf": [{"properties": {"k": {"const": "x"}, "v": {"type": "integer"}}, "required": ["k", "v"]},
                     {"properties": {"k": {"const": "y"}, "v": {"type": "string"}}, "required": ["k", "v"]}], "type": "object"})",
       {"{\"k\": \"x\", \"v\": 1}", "{\"k\": \"y\", \"v\": \"\"}"},
       {"{\"k\": \"x\", \"v\": \"\"}", "{\"k\": \"z\", \"v\": 1}"}},
      {R"({"allOf": [{"properties": {"a": {"type": "integer"}}, "required": ["a"]}, {"properties": {"b": {"type": "null"}}}], "type": "object"})",
       {"{\"a\": 1}", "{\"a\": 1, \"b\": null}", "{\"b\": null, \"a\": 1}"},
       {"{\"b\": null}", "{\"a\": 1, \"b\": 1}"}},
      {R"({"not": {"type": ["string", "object"]}})", {"1", "null", "[]"}, {"\"\"", "{}"}},
      {R"({"type": "string", "not": {"pattern": "x"}})", {"\"a\""}, {"\"ax\""}},
      {R"({"type": "number", "not": {"type": "integer"}})", {"1.5", "1e-07"}, {"1", "1.0", "0"}},
      {R"({"type": "integer", "not": {"enum": [1, 2]}})", {"0", "3", "12"}, {"1", "2", "2.0"}},
      {R"({"type": "number", "not": {"enum": [1, 2]}})", {"0", "3.0", "12"}, {"1", "2", "2.0", "2e0"}},
      {R"({"type": "object", "not": {"required": ["a"]}})", {"{}", "{\"b\": 1}"}, {"{\"a\": 1}"}},
      {R"({"not": {"anyOf": [{"type": "integer"}, {"type": "string"}]}})", {"null", "1.5"}, {"1", "\"a\""}},
      {R"({"if": {"properties": {"t": {"const": 1}}, "required": ["t"]}, "then": {"required": ["a"]}, "else": {"required": ["b"]}, "type": "object"})",
       {"{\"t\": 1, \"a\": 0}", "{\"t\": 2, \"b\": 0}", "{\"b\": 0}"},
       {"{\"t\": 1, \"b\": 0}", "{\"t\": 2, \"a\": 0}", "{}"}},
      {R"({"dependentRequired": {"a": ["b"]}, "type": "object"})",
       {"{}", "{\"b\": 1}", "{\"a\": 1, \"b\": 1}", "{\"b\": 1, \"a\": 1}"},
       {"{\"a\": 1}"}},
      {R"({"dependentSchemas": {"a": {"properties": {"b": {"type": "integer"}}}}, "type": "object"})",
       {"{\"b\": \"x\"}", "{\"a\": 1, \"b\": 1}"},
       {"{\"a\": 1, \"b\": \"x\"}"}},
      {R"({"dependencies": {"a": ["b"], "c": {"required": ["d"]}}, "type": "object"})",
       {"{}", "{\"c\": 1, \"d\": 1}"},
       {"{\"c\": 1}", "{\"a\": 1}"}},
  });
}

TEST(JsonSchema, References) {
  check_schemas(std::vector<SchemaCase>{
      {R"({"$defs": {"n": {"type": "integer"}}, "type": "array", "items": {"$ref": "#/$defs/n"}})",
       {"[1]"},
       {"[\"a\"]"}},
      {R"({"type": "object", "properties": {"next": {"$ref": "#"}}, "additionalProperties": false})",
       {"{}", "{\"next\": {\"next\": {}}}"},
       {"{\"next\": 1}"}},
      {R"({"$defs": {"a~b/c": {"const": 1}}, "$ref": "#/$defs/a~0b~1c"})", {"1"}, {"2"}},
      {R"({"$defs": {"p": {"type": "object", "properties": {"a": {"type": "integer"}}}}, "$ref": "#/$defs/p", "required": ["a"]})",
       {"{\"a\": 1}"},
       {"{}"}},
      {R"({"definitions": {"p": {"type": "integer"}}, "$ref": "#/definitions/p", "minimum": 5})",
       {"1"},
       {"\"\""}},  // draft 7
      {R"({"$id": "http://x/y", "$defs": {"p": {"type": "integer"}}, "$ref": "http://x/y#/$defs/p"})", {"1"}, {"\"\""}},
      {R"({"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, {"type": "null"}]}}, "$ref": "#/$defs/a"})",
       {"null"},
       {"1"}},
      {R"({"anyOf": [{"type": "integer"}, {"type": "array", "items": {"$ref": "#"}}]})", {"[[1], []]"}, {"[[\"a\"]]"}},
  });
}

// Texts from elsewhere may spell integers otherwise.
TEST(JsonSchema, AChecksIntegersMayHaveAFractionOfZero) {
  const auto checks = [](const char* schema, const char* text) {
    return accepts(compile_json_schema(nlohmann::ordered_json::parse(schema), {}, Texts::kToCheck), text);
  };
  for (const char* text : {"5", "5.0", "1e+22", "-0"}) EXPECT_TRUE(checks(R"({"type": "integer"})", text)) << text;
  EXPECT_TRUE(checks(R"({"enum": [5]})", "5.0"));
  EXPECT_TRUE(checks(R"({"type": "integer", "maximum": 9})", "9.0"));
  EXPECT_FALSE(checks(R"({"type": "integer"})", "5.5"));
}

TEST(JsonSchema, FormatsThatAssertNothingAreAnnotations) {
  for (const char* format :
       {"password", "binary", "byte", "path", "decimal", "int32", "uint8", "double", "url", "color", "", "my own"}) {
    for (const char* type : {R"("string")", R"(["string", "null"])"}) {
      const auto schema = fmt::format(R"({{"type": {}, "format": "{}", "minLength": 1}})", type, format);
      EXPECT_TRUE(schema_accepts(schema, "\"a b\"")) << schema;
      EXPECT_FALSE(schema_accepts(schema, "\"\"")) << schema;
    }
    EXPECT_TRUE(schema_accepts(fmt::format(R"({{"type": "number", "format": "{}"}})", format), "1.5")) << format;
    EXPECT_TRUE(schema_accepts(fmt::format(R"({{"type": "integer", "format": "{}"}})", format), "1")) << format;
    EXPECT_TRUE(schema_accepts(fmt::format(R"({{"format": "{}"}})", format), "null")) << format;
  }
  EXPECT_TRUE(schema_accepts(R"({"type": "integer", "format": "date"})", "1"));  // says nothing about numbers
}

TEST(JsonSchema, UnevaluatedPropertiesAreThoseOfNoOtherKeyword) {
  check_schemas(std::vector<SchemaCase>{
      {R"({"properties": {"a": true}, "unevaluatedProperties": false, "type": "object"})",
       {"{}", "{\"a\": 1}"},
       {"{\"b\": 1}", "{\"a\": 1, \"b\": 1}"}},
      {R"({"properties": {"a": true}, "patternProperties": {"^x": {"type": "integer"}}, "unevaluatedProperties": {"type": "null"}, "type": "object"})",
       {"{\"a\": 1, \"x1\": 1, \"b\": null}"},
       {"{\"b\": 1}", "{\"x1\": null}"}},
      {R"({"properties": {"a": true}, "additionalProperties": {"type": "integer"}, "unevaluatedProperties": false, "type": "object"})",
       {"{\"b\": 1}"},
       {"{\"b\": null}"}},
      {R"({"allOf": [{"properties": {"a": true}, "required": ["a"]}, {"$ref": "#/$defs/b"}], "properties": {"c": true},
           "unevaluatedProperties": false, "type": "object", "$defs": {"b": {"properties": {"b": {"type": "integer"}}}}})",
       {"{\"a\": 1}", "{\"c\": 1, \"b\": 2, \"a\": 3}"},
       {"{}", "{\"a\": 1, \"d\": 1}", "{\"a\": 1, \"b\": null}"}},
      {R"({"$ref": "#/$defs/b", "properties": {"c": true}, "unevaluatedProperties": false, "type": "object",
           "$defs": {"b": {"allOf": [{"properties": {"b": true}}]}}})",
       {"{\"b\": 1, \"c\": 1}"},
       {"{\"d\": 1}"}},
      {R"({"type": "object", "oneOf": [{"properties": {"k": {"const": 1}, "a": true}, "required": ["k"]},
                                       {"properties": {"k": {"const": 2}, "b": true}, "required": ["k"]}],
           "unevaluatedProperties": false})",
       {"{\"k\": 1, \"a\": 1}", "{\"b\": 1, \"k\": 2}"},
       {"{\"k\": 1, \"b\": 1}", "{\"k\": 2, \"a\": 1}", "{\"k\": 1, \"c\": 1}"}},
      {R"({"type": "object", "anyOf": [{"properties": {"a": true}, "required": ["a"]}, {"properties": {"b": true}, "required": ["b"]},
                                       {"required": ["c"]}],
           "properties": {"c": true}, "unevaluatedProperties": false})",
       {"{\"a\": 1}", "{\"b\": 1, \"a\": 1}", "{\"c\": 1}", "{\"c\": 1, \"b\": 1}"},
       {"{}", "{\"d\": 1, \"a\": 1}"}},
      {R"({"type": "object", "if": {"properties": {"k": {"const": 1}}, "required": ["k"]}, "then": {"properties": {"a": true}},
           "else": {"properties": {"b": true}}, "unevaluatedProperties": false})",
       {"{\"k\": 1, \"a\": 1}", "{\"b\": 1}", "{}"},
       {"{\"k\": 1, \"b\": 1}", "{\"a\": 1}", "{\"k\": 2}"}},
      {R"({"type": "object", "properties": {"a": true}, "dependentSchemas": {"a": {"properties": {"b": true}}},
           "unevaluatedProperties": false})",
       {"{}", "{\"a\": 1, \"b\": 1}"},
       {"{\"b\": 1}"}},
      // Cousins see nothing of each other.
      {R"({"type": "object", "allOf": [{"properties": {"a": true}}, {"unevaluatedProperties": false}]})",
       {"{}"},
       {"{\"a\": 1}"}},
  });
}

std::string object_of(std::vector<std::string> names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "{\"" : ", \"") + name + "\": 1";
  return text + "}";
}

TEST(JsonSchema, PropertiesComeInAnyOrder) {
  const GrammarPtr grammar = compile_json_schema(nlohmann::ordered_json::parse(
      R"({"type": "object", "properties": {"a": true, "b": true, "c": true, "d": true}, "required": ["d", "b"], "additionalProperties": false})"));
  std::vector<std::string> names{"a", "b", "c", "d"};
  do {
    for (size_t count = 0; count <= names.size(); ++count) {
      const std::vector<std::string> some(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(count));
      const auto has = [&](const char* name) { return std::ranges::find(some, name) != some.end(); };
      EXPECT_EQ(accepts(grammar, some.empty() ? "{}" : object_of(some)), has("b") && has("d")) << object_of(some);
    }
  } while (std::ranges::next_permutation(names).found);
  // Of several schemas, and with other properties between them.
  const char* joined =
      R"({"type": "object", "allOf": [{"properties": {"a": true, "b": true}, "required": ["b", "a"]}, {"properties": {"c": true}, "required": ["c"]}]})";
  for (const auto& order :
       std::vector<std::vector<std::string>>{{"b", "a", "c"}, {"c", "x", "a", "b"}, {"a", "c", "b", "y"}})
    EXPECT_TRUE(schema_accepts(joined, object_of(order))) << object_of(order);
  EXPECT_FALSE(schema_accepts(joined, object_of({"b", "c"})));
}

TEST(JsonSchema, CountsOfPropertiesHoldInAnyOrder) {
  const char* schema =
      R"({"type": "object", "properties": {"a": true, "b": true, "c": true}, "required": ["c"], "additionalProperties": false, "minProperties": 2, "maxProperties": 2})";
  for (const auto& order : std::vector<std::vector<std::string>>{{"a", "c"}, {"c", "a"}, {"c", "b"}})
    EXPECT_TRUE(schema_accepts(schema, object_of(order))) << object_of(order);
  for (const auto& order : std::vector<std::vector<std::string>>{{"a", "b"}, {"c"}, {"c", "b", "a"}, {"a"}})
    EXPECT_FALSE(schema_accepts(schema, object_of(order))) << object_of(order);
  // What can no longer be completed is not begun.
  Matcher matcher(Vocabulary::of_bytes(), compile_json_schema(nlohmann::ordered_json::parse(schema)));
  EXPECT_TRUE(matcher.advance_bytes("{\"a\": 1"));
  EXPECT_EQ(matcher.forced_bytes(0), "");
  EXPECT_FALSE(matcher.advance_bytes(", \"b"));
  const char* open = R"({"type": "object", "properties": {"a": true}, "minProperties": 3, "maxProperties": 4})";
  EXPECT_TRUE(schema_accepts(open, object_of({"x", "a", "y"})));
  EXPECT_FALSE(schema_accepts(open, object_of({"x", "a"})));
  EXPECT_FALSE(schema_accepts(open, object_of({"x", "a", "y", "z", "v"})));
}

// So many that their orders are too many.
TEST(JsonSchema, ManyPropertiesComeInTheOrderOfTheSchemaOrOfRequired) {
  nlohmann::ordered_json schema = {{"type", "object"}, {"additionalProperties", false}};
  std::vector<std::string> all;
  for (int i = 0; i < 300; ++i) {
    all.push_back("p" + std::to_string(i));
    schema["properties"][all.back()] = true;
  }
  schema["required"] = {"p200", "p7"};
  const GrammarPtr grammar = compile_json_schema(schema);
  EXPECT_TRUE(accepts(grammar, object_of(all)));
  EXPECT_TRUE(accepts(grammar, object_of({"p7", "p9", "p200", "p299"})));
  EXPECT_TRUE(accepts(grammar, object_of({"p200", "p7", "p0", "p299"})));
  EXPECT_FALSE(accepts(grammar, object_of({"p200", "p0", "p7"})));
  EXPECT_FALSE(accepts(grammar, object_of({"p7", "p200", "p0"})));
  EXPECT_FALSE(accepts(grammar, object_of({"p7"})));
  // The two orders of a pair of schemas.
  const nlohmann::ordered_json pair = {{"allOf", {schema, {{"required", {"p5"}}}}}, {"type", "object"}};
  EXPECT_TRUE(accepts(compile_json_schema(pair), object_of({"p200", "p7", "p5", "p1"})));
}

TEST(JsonSchema, ManyPropertiesInAnyOrderNeedLittle) {
  nlohmann::ordered_json schema = {{"type", "object"}, {"additionalProperties", false}};
  std::vector<std::string> all;
  for (int i = 0; i < 100; ++i) {
    all.push_back("p" + std::to_string(i));
    schema["properties"][all.back()] = {{"type", "integer"}};
    schema["required"].push_back(all.back());
  }
  const GrammarPtr grammar = compile_json_schema(schema);
  std::ranges::reverse(all);
  EXPECT_TRUE(accepts(grammar, object_of(all)));
  EXPECT_FALSE(accepts(grammar, object_of({all.begin() + 1, all.end()})));
  EXPECT_LT(grammar->memory(), size_t{8} << 20);
}

TEST(JsonSchema, UnknownKeywordsAreAnnotations) {
  EXPECT_TRUE(
      schema_accepts(R"({"type": "integer", "x-order": 1, "title": "t", "default": "no", "examples": [1]})", "5"));
}

TEST(JsonSchema, ObjectModeAcceptsObjectsOnly) {
  const GrammarPtr grammar = compile_json_object();
  EXPECT_TRUE(accepts(grammar, "{\"a\": [1, {\"b\": null}]}"));
  EXPECT_FALSE(accepts(grammar, "[]"));
}

TEST(JsonSchema, LargeSchemasCompile) {
  nlohmann::ordered_json schema = {{"type", "object"}};
  for (int i = 0; i < 1000; ++i) schema["properties"]["name" + std::to_string(i)] = {{"type", "integer"}};
  EXPECT_TRUE(accepts(compile_json_schema(schema), "{\"name3\": 1, \"name999\": 2}"));
  nlohmann::ordered_json values = nlohmann::ordered_json::array();
  for (int i = 0; i < 5000; ++i) values.push_back("value " + std::to_string(i));
  EXPECT_TRUE(accepts(compile_json_schema({{"enum", values}}), "\"value 4321\""));
}

}  // namespace
}  // namespace quire::grammar
