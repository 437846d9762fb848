// Malformed, unsupported, unsatisfiable and enormous input ends with an Error that says what and where, in bounded time.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "accepts.h"
#include "error_of.h"

namespace quire::grammar {
namespace {

struct BadCase {
  const char* input;
  const char* error;  // part of the message
};

TEST(BadInput, Schemas) {
  const BadCase cases[] = {
      // not schemas
      {"5", "schema at #: expected an object or a boolean"},
      {"\"x\"", "expected an object or a boolean"},
      {"null", "expected an object or a boolean"},
      {"[]", "expected an object or a boolean"},
      {R"({"properties": {"a": 5}})", "schema at #/properties/a: expected an object or a boolean, found 5"},
      {R"({"items": "x", "type": "array"})", "schema at #/items"},
      {R"({"anyOf": [3]})", "schema at #/anyOf/0"},
      {R"({"additionalProperties": 1, "type": "object"})", "schema at #/additionalProperties"},
      // keywords of the wrong type
      {R"({"type": "text"})", "type at #: \"text\" is not a type"},
      {R"({"type": 5})", "type at #: 5 is not a type"},
      {R"({"type": ["string", "any"]})", "\"any\" is not a type"},
      {R"({"enum": "a"})", "enum at #: expected an array"},
      {R"({"properties": []})", "properties at #: expected an object"},
      {R"({"patternProperties": 1})", "patternProperties at #: expected an object"},
      {R"({"required": "a"})", "required at #: expected an array"},
      {R"({"required": [1]})", "required at #: expected strings"},
      {R"({"properties": {"a": {"type": "object", "required": true}}})",
       "required at #/properties/a: expected an array"},
      {R"({"minLength": -1})", "minLength at #: expected an integer of at least 0, found -1"},
      {R"({"maxLength": 1.5})", "maxLength at #"},
      {R"({"minItems": "2"})", "minItems at #"},
      {R"({"maxItems": null})", "maxItems at #"},
      {R"({"minProperties": []})", "minProperties at #"},
      {R"({"maxProperties": -3})", "maxProperties at #"},
      {R"({"minimum": "1"})", "minimum at #: expected a number"},
      {R"({"maximum": null})", "maximum at #: expected a number"},
      {R"({"exclusiveMinimum": "x"})", "exclusiveMinimum at #: expected a number"},
      {R"({"multipleOf": 0})", "multipleOf at #: must be above 0"},
      {R"({"multipleOf": -2})", "multipleOf at #: must be above 0"},
      {R"({"multipleOf": "2"})", "multipleOf at #: expected a number"},
      {R"({"pattern": 5})", "pattern at #: expected a string"},
      {R"({"type": "string", "format": 5})", "format at #: expected a string"},
      {R"({"prefixItems": {}})", "prefixItems at #: expected an array"},
      {R"({"allOf": {}})", "allOf at #: expected a non-empty array"},
      {R"({"anyOf": []})", "anyOf at #: expected a non-empty array"},
      {R"({"oneOf": 1})", "oneOf at #: expected a non-empty array"},
      {R"({"not": 1})", "not at #/not: expected a schema"},
      {R"({"dependencies": []})", "dependencies at #: expected an object"},
      {R"({"dependentRequired": {"a": 5}})", "dependentRequired at #: expected arrays or schemas"},
      {R"({"$ref": 5})", "$ref at #: expected a string"},
      // references
      {R"({"$ref": "#/$defs/none"})", "$ref at #: \"#/$defs/none\" does not exist"},
      {R"({"$ref": "http://example.com/x.json"})", "is outside of this schema"},
      {R"({"$ref": "other.json#/a"})", "is outside of this schema"},
      {R"({"$ref": "#name"})", "is an anchor"},
      {R"({"items": [{"$ref": "#/items/7"}], "type": "array"})", "does not exist"},
      {R"({"$dynamicRef": "#x"})", "$dynamicRef at #: this keyword is not supported"},
      {R"({"$defs": {"a": {"$id": "http://x/"}}, "$ref": "#/$defs/a"})", "inner $id"},
      {R"({"$schema": "http://example.com/mine"})", "$schema at #: the dialect"},
      // refused keywords
      {R"({"unevaluatedItems": false})", "unevaluatedItems at #"},
      {R"({"type": "array", "uniqueItems": true})", "uniqueItems at #: true is not supported"},
      {R"({"type": "array", "contains": true, "minContains": 2})", "minContains at #"},
      {R"({"type": "array", "contains": true, "maxContains": 2})", "maxContains at #"},
      {R"({"type": "array", "contains": {"const": 1}, "maxItems": 2})", "contains at #/contains: next to"},
      {R"({"type": "array", "contains": true, "allOf": [{"contains": {"const": 1}}]})",
       "contains at #/allOf/0: more than one"},
      {R"({"type": "string", "format": "iri"})", "format at #: \"iri\" is not supported"},
      {R"({"type": "string", "format": "regex"})", "format at #: \"regex\" is not supported"},
      {R"({"format": "date"})", "format at #: \"date\" is enforced only next to"},
      {R"({"type": "number", "multipleOf": 0.123456789})", "multipleOf at #: 0.123456789 has too many digits"},
      {R"({"properties": {"a/b": {"type": "string", "format": "iri"}}})", "format at #/properties/a~1b"},
      {R"({"not": {"items": {"type": "string"}}})", "items at #/not: `not` over this keyword"},
      {R"({"not": {"additionalProperties": false}})", "additionalProperties at #/not"},
      {R"({"not": {"const": {"a": 1}}})", "const at #/not: `not` over arrays and objects"},
      {R"({"not": {"multipleOf": 2}})", "multipleOf at #/not"},
      {R"({"oneOf": [{"type": "array", "items": {"type": "string"}}, {"type": "array"}]})",
       "alternatives 0 and 1 may hold at once"},
      {R"({"if": {"items": {"type": "string"}}, "then": false})", "items at #/if"},
      // patterns
      {R"({"type": "string", "pattern": "("})", "pattern at #: regex \"(\", column 2: a group is not closed"},
      {R"({"type": "string", "pattern": "(?<=a)b"})", "look-behind"},
      {R"({"type": "string", "pattern": "\\bx"})", "word boundaries"},
      {R"({"type": "string", "pattern": "(a)\\1"})", "back references"},
      {R"({"patternProperties": {"[": true}, "type": "object"})", "patternProperties at #: regex"},
      // no instance
      {"false", "no text satisfies"},
      {R"({"enum": []})", "enum at #: expected at least one value"},
      {R"({"properties": {"a": {"type": "string", "enum": []}}})",
       "enum at #/properties/a: expected at least one value"},
      {R"({"type": "object", "properties": {"a": true}, "required": ["a", "b"], "additionalProperties": false})",
       "required at #: \"b\" is required, but additionalProperties at # is false"},
      {R"({"type": "object", "properties": {"o": {"type": "array", "minItems": 1, "items": {"type": "object", "required": ["b"], "patternProperties": {"a": true}, "additionalProperties": false}}}, "required": ["o"]})",
       "required at #/properties/o/items: \"b\" is required, but additionalProperties at #/properties/o/items is "
       "false"},
      {R"({"type": "object", "allOf": [{"required": ["b"]}, {"additionalProperties": false, "properties": {"a": true}}]})",
       "required at #/allOf/0: \"b\" is required, but additionalProperties at #/allOf/1 is false"},
      {R"({"anyOf": [{"type": "object", "required": ["b"], "additionalProperties": false}, {"type": "null"}]})", ""},
      {R"({"type": "object", "allOf": [{"properties": {"a": true}, "unevaluatedProperties": false}, {"required": ["b"]}]})",
       "required at #/allOf/1: \"b\" is required, but additionalProperties at #/allOf/0"},
      {R"({"not": {"unevaluatedProperties": false}})", "unevaluatedProperties at #/not"},
      {R"({"type": []})", "no text satisfies"},
      {R"({"type": "string", "enum": [1, 2]})", "no text satisfies"},
      {R"({"type": "integer", "minimum": 5, "maximum": 4})", "no text satisfies"},
      {R"({"type": "integer", "exclusiveMinimum": 1, "exclusiveMaximum": 2})", "no text satisfies"},
      {R"({"type": "string", "minLength": 5, "maxLength": 4})", "no text satisfies"},
      {R"({"type": "string", "pattern": "^a{5}$", "maxLength": 4})", "no text satisfies"},
      {R"({"type": "array", "minItems": 3, "maxItems": 2})", "no text satisfies"},
      {R"({"type": "array", "minItems": 1, "items": false})", "no text satisfies"},
      {R"({"type": "object", "required": ["a"], "properties": {"a": false}})",
       "schema: required at #: \"a\" is required, but no value of it is allowed"},
      {R"({"type": "object", "required": ["a", "b"], "maxProperties": 1})", "no text satisfies"},
      {R"({"type": "object", "required": ["a"], "additionalProperties": false})", "required at #: \"a\""},
      {R"({"type": "object", "minProperties": 1, "additionalProperties": false})", "no text satisfies"},
      {R"({"type": "object", "minProperties": 1, "propertyNames": false})", "no text satisfies"},
      {R"({"allOf": [{"type": "string"}, {"type": "integer"}]})", "no text satisfies"},
      {R"({"not": {}})", "no text satisfies"},
      {R"({"$ref": "#"})", ""},  // says nothing, so all is valid
      {R"({"type": "object", "required": ["a"], "properties": {"a": {"$ref": "#"}}})", "no text satisfies"},
      {R"({"oneOf": [{"const": 1}, {"const": 1}]})", "no text satisfies"},
  };
  for (const BadCase& c : cases) {
    const std::string error = error_of([&] { compile_json_schema(nlohmann::ordered_json::parse(c.input)); });
    EXPECT_NE(error.find(c.error), error.npos) << c.input << "\nsays: " << error;
    EXPECT_EQ(error.empty(), *c.error == '\0') << c.input << "\nsays: " << error;
  }
}

TEST(BadInput, Regexes) {
  const BadCase cases[] = {
      {"(", "column 2: a group is not closed"},
      {"a)", "column 2: unmatched ')'"},
      {"*a", "column 1: nothing to repeat"},
      {"a**", "nothing to repeat"},
      {"a{2}{3}", "nothing to repeat"},
      {"^*", "nothing to repeat"},
      {"?", "nothing to repeat"},
      {"(|+)", "nothing to repeat"},
      {"[a", "a class is not closed"},
      {"[z-a]", "a range is out of order"},
      {"[\\", "unexpected end"},
      {"a\\", "unexpected end"},
      {"a{3,2}", "out of order"},
      {"a{1000001}", "counts over 1000000"},
      {"a{1,99999999999999999999}", "counts over 1000000"},
      {"\\x1", "unexpected end"},
      {"\\xgg", "hexadecimal"},
      {"\\u12", "unexpected end"},
      {"\\u{110000}", "no such character"},
      {"\\u{}", "hexadecimal"},
      {"\\ud800\\u0041", "surrogate"},
      {"\\c1", "needs a letter"},
      {"\\p{Klingon}", "the property \"Klingon\" is not supported"},
      {"\\pL", "expected \\p{NAME}"},
      {"\\p{L", "expected \\p{NAME}"},
      {"(a)\\1", "back references"},
      {"\\k<a>", "the escape \\k is not supported"},
      {"\\Aa\\z", "the escape \\A is not supported"},
      {"\\bfoo", "word boundaries"},
      {"(?<=a)b", "look-behind"},
      {"(?<!a)b", "look-behind"},
      {"(?i)a", "flags and this kind of group"},
      {"(?>a)", "flags and this kind of group"},
      {"a++", "possessive"},
      {"(^a)*", "repeated group with anchors"},
      {"((?=a)b)+", "repeated group with anchors"},
      {"a?^b", "'^' after a part that may be empty"},
      {"[[:alpha:]]", "POSIX"},
      {"\xFF", "not well-formed UTF-8"},
      {"[]", "no text satisfies"},
      {"a^b", "no text satisfies"},
      {"(?=b)a", "no text satisfies"},
      {"(?!)", "no text satisfies"},
  };
  for (const BadCase& c : cases) {
    const std::string error = error_of([&] { compile_regex(c.input); });
    EXPECT_NE(error.find(c.error), error.npos) << c.input << "\nsays: " << error;
    EXPECT_FALSE(error.empty()) << c.input;
  }
}

TEST(BadInput, Grammars) {
  const BadCase cases[] = {
      {"", "no rule named root"},
      {"a ::= \"x\"", "no rule named root"},
      {"root", "line 1, column 5: expected '::='"},
      {"root ::= x", "line 1, column 10: rule \"x\" is not defined"},
      {"root ::= \"a\"\nroot ::= \"b\"", "line 2, column 1: rule \"root\" is defined twice"},
      {"root := \"a\"", "expected '::='"},
      {"root ::= \"a", "column 10: the literal is not closed"},
      {"root ::= \"a\n\"", "the literal is not closed"},
      {"root ::= [a", "column 10: the class is not closed"},
      {"root ::= [b-a]", "the range is out of order"},
      {"root ::= (\"a\"", "'(' is not closed"},
      {"root ::= \"a\")", "expected the name of a rule"},
      {"root ::= *", "nothing to repeat"},
      {"root ::= \"a\"{", "expected {m}"},
      {"root ::= \"a\"{2,1}", "out of order"},
      {"root ::= \"a\"{9999999}", "counts over"},
      {"root ::= \"\\q\"", "unknown escape \\q"},
      {"root ::= \"\\xZZ\"", "expected 2 hexadecimal digits"},
      {"root ::= \"\\uD800\"", "no such character"},
      {"root ::= \"\\U00110000\"", "no such character"},
      {"root ::= <think", "expected <name>"},
      {"root ::= <[12>", "column 10: expected <[id]>"},
      {"root ::= <[]>", "expected <[id]>"},
      {"root ::= <[-1]>", "expected <[id]>"},
      {"root ::= <[99999999999]>", "expected <[id]>"},
      {"root ::= \"a\"\n  !think", "line 2, column 3: expected <name> or <[id]> after '!'"},
      {"root ::= !<think", "expected <name>"},
      {"root ::= \"a\" % \"b\"", "unexpected \"%\""},
      {"root ::= (= \"a\")", "look-ahead"},
      {"root ::= root", "no text satisfies"},
      {"root ::= \"a\" root", "no text satisfies"},
      {"root ::= []", "no text satisfies"},
      {"root ::= a \"x\"\na ::= b | \"y\"\nb ::= a \"z\"", "left recursion"},
      {"root ::= \"\xFF\"", "not well-formed UTF-8"},
  };
  for (const BadCase& c : cases) {
    const std::string error = error_of([&] { compile_gbnf(c.input); });
    EXPECT_NE(error.find(c.error), error.npos) << c.input << "\nsays: " << error;
    EXPECT_FALSE(error.empty()) << c.input;
  }
  EXPECT_NE(error_of([] { compile_choice({}); }).find("at least one"), std::string::npos);
}

TEST(BadInput, EnormousInputIsRefused) {
  using nlohmann::ordered_json;
  const auto nested = [](int depth, auto&& wrap) {
    ordered_json schema = {{"type", "integer"}};
    for (int i = 0; i < depth; ++i) schema = wrap(schema);
    return schema;
  };
  const std::string deep = error_of([&] {
    compile_json_schema(nested(300, [](const ordered_json& s) { return ordered_json{{"items", s}}; }));
  });
  EXPECT_NE(deep.find("nested deeper than 100"), deep.npos) << deep;
  const std::string large = error_of([] { compile_json_schema({{"const", std::string(2'000'000, 'x')}}); });
  EXPECT_NE(large.find("larger than"), large.npos) << large;
  // 3^20 combinations of alternatives
  ordered_json all = ordered_json::array();
  for (int i = 0; i < 20; ++i) {
    ordered_json any = ordered_json::array();
    for (int j = 0; j < 3; ++j) any.push_back({{"required", {"p" + std::to_string(i * 3 + j)}}});
    all.push_back({{"anyOf", any}});
  }
  const std::string product = error_of([&] { compile_json_schema({{"type", "object"}, {"allOf", all}}); });
  EXPECT_NE(product.find("too many steps"), product.npos) << product;
  // A chain of references longer than the compiler recurses is fine.
  ordered_json chain = {{"$ref", "#/$defs/d0"}};
  for (int i = 0; i < 3000; ++i)
    chain["$defs"]["d" + std::to_string(i)] = {{"type", "array"},
                                               {"items", {{"$ref", "#/$defs/d" + std::to_string(i + 1)}}}};
  chain["$defs"]["d3000"] = {{"type", "null"}};
  EXPECT_TRUE(accepts(compile_json_schema(chain), std::string(3000, '[') + "null" + std::string(3000, ']')));

  EXPECT_NE(error_of([] { compile_regex(std::string(2'000'000, 'a')); }).find("too large"), std::string::npos);
  EXPECT_NE(error_of([] { compile_regex(std::string(500, '(') + std::string(500, ')')); }).find("nested deeper"),
            std::string::npos);
  EXPECT_NE(error_of([] {
              compile_gbnf("root ::= " + std::string(500, '(') + "\"a\"" + std::string(500, ')'));
            }).find("nested deeper"),
            std::string::npos);
  std::string rules = "root ::= r0\n";
  for (int i = 0; i < 5000; ++i) rules += "r" + std::to_string(i) + " ::= \"a\" r" + std::to_string(i + 1) + "\n";
  EXPECT_TRUE(accepts(compile_gbnf(rules + "r5000 ::= \"b\"\n"), std::string(5000, 'a') + "b"));
  EXPECT_EQ(error_of([] { compile_regex("((((a{1,1000}){1,1000}){1,1000}){1,1000})"); }), "");
}

TEST(BadInput, TreesEndAtTheFirstPartBeyondTheLimit) {
  Limits limits;
  limits.nodes = 1000;
  const std::string parts(990, 'a'), bars(990, '|'), literals(990, '.');
  EXPECT_EQ(error_of([&] { compile_regex("[a]" + bars, limits); }), "");
  EXPECT_EQ(error_of([&] { compile_gbnf("root ::= \"a\"" + bars, limits); }), "");
  for (const std::string& more : {parts + parts, bars + bars, literals + "[x-z]" + literals}) {
    const std::string regex = error_of([&] { compile_regex(more, limits); });
    EXPECT_NE(regex.find("it has more than 1000 parts"), regex.npos) << regex;
    EXPECT_NE(regex.find("column 10"), regex.npos) << regex;
  }
  for (const std::string& more : {"root ::= \"a\"" + bars + bars, "root ::= \n" + literals + literals}) {
    const std::string grammar = error_of([&] { compile_gbnf(more, limits); });
    EXPECT_NE(grammar.find("it has more than 1000 parts"), grammar.npos) << grammar;
    EXPECT_NE(grammar.find("grammar: line "), grammar.npos) << grammar;
  }
  std::string rules = "root ::= r0\n";
  for (int i = 0; i < 600; ++i) rules += fmt::format("r{} ::= r{}\n", i, i + 1);
  EXPECT_NE(error_of([&] { compile_gbnf(rules + "r600 ::= \"\"", limits); }).find("parts"), std::string::npos);
}

TEST(BadInput, CompilationStopsWhenAsked) {
  std::stop_source source;
  source.request_stop();
  Limits limits;
  limits.stop = source.get_token();
  nlohmann::ordered_json schema = {{"type", "object"}};
  for (int i = 0; i < 2000; ++i) schema["properties"]["p" + std::to_string(i)] = {{"type", "string"}};
  const std::string error = error_of([&] { compile_json_schema(schema, limits); });
  EXPECT_NE(error.find("was stopped"), error.npos) << error;
}

}  // namespace
}  // namespace quire::grammar
