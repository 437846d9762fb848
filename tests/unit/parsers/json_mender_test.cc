// Arguments that are almost JSON become JSON, whatever they are and however they are split; JSON stays as it is.
#include "parsers/json_mender.h"

#include <gtest/gtest.h>

#include <random>

#include "json/parse.h"

namespace quire {
namespace {

std::string mended(std::string_view text, size_t chunk = SIZE_MAX) {
  JsonMender mender;
  std::string out;
  while (!text.empty() && !mender.ended()) {
    std::string_view piece = text.substr(0, chunk);
    text.remove_prefix(piece.size());
    while (!piece.empty() && !mender.ended()) piece.remove_prefix(mender.add(piece, out));
  }
  mender.close(out);
  return out;
}

Json parsed(const std::string& text) { return parse_json(text, "", {.depth = 1000}); }

TEST(JsonMender, LeavesJsonAsItIs) {
  for (const char* text : {
           R"({})",
           R"({ })",
           R"({"a": 1, "b" : [1 , 2.5e-3,  true,null , [ ], {"c": {}} ], "d":"x\"y\\\n\u00e9\ud83d\ude00/\/" })",
           "{\n  \"a\": [\n    1,\n    \"é, } ] : {\"\n  ],\n  \"b\": \"\"\n}",
           R"({"": -0.0, "a": "\\", "b": "\\\"", "c": "\\\\"})",
           R"({"number": 12345678901234567890123456789012345678901234567890123456789012345678901234567890})",
       }) {
    EXPECT_EQ(mended(text), text);
    EXPECT_EQ(mended(text, 1), text);
  }
}

TEST(JsonMender, WritesWhatModelsMean) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      // in strings
      {"{\"a\": \"x\ny\tz\r\x01\"}", R"({"a": "x\ny\tz\r\u0001"})"},
      {"{\"a\nb\": 1}", R"({"a\nb": 1})"},
      {R"({"re": "\d+\.\w", "path": "C:\Users\new"})", R"({"re": "\\d+\\.\\w", "path": "C:\\Users\new"})"},
      {R"({"a": "it\'s", "b": "\u12", "c": "\uZZ"})", R"({"a": "it's", "b": "\\u12", "c": "\\uZZ"})"},
      {R"({"a": "\ud800", "b": "\ude00x", "c": "\ud800\n", "d": "\ud83d\ud83d\ude00"})",
       R"({"a": "\ufffd", "b": "\ufffdx", "c": "\ufffd\n", "d": "\ufffd\ud83d\ude00"})"},
      {"{\"sh\": \"a \\\nb\"}", R"({"sh": "a \\\nb"})"},
      {R"_({"code": "print("hi")"})_", R"_({"code": "print(\"hi\")"})_"},
      {R"({"a": ""hello" he said"})", R"({"a": "\"hello\" he said"})"},
      {R"({"a": "He said "no", then left", "b": 1})", R"({"a": "He said \"no\", then left", "b": 1})"},
      {R"({a: "x", b: "y"})", R"({"a": "x", "b": "y"})"},
      {R"({'a': 'it's "so"', "b": 'x'})", R"({"a": "it's \"so\"", "b": "x"})"},
      // commas
      {R"({"x": 1,})", R"({"x": 1})"},
      {R"({"x": [1, 2, ], "y": {"z": true, }, })", R"({"x": [1, 2 ], "y": {"z": true } })"},
      {R"({"x": 1 "y": "a" "z": [1 "b" "c"]})", R"({"x": 1 ,"y": "a" ,"z": [1 ,"b" ,"c"]})"},
      {R"({, "x": 1,, "y": [,2,,3]})", R"({ "x": 1, "y": [2,3]})"},
      // words
      {R"({"a": True, "b": [None, False], "c": Oslo, "d": New York , "e": .5, "f": 01})",
       R"({"a": true, "b": [null, false], "c": "Oslo", "d": "New York" , "e": ".5", "f": "01"})"},
      {R"({city: "Oslo", days : 2})", R"({"city": "Oslo", "days": 2})"},
      {R"({"a": NaN, "b": undefined, "c": 5 days})", R"({"a": "NaN", "b": "undefined", "c": "5 days"})"},
      // colons and brackets
      {R"({"a" 1, "b" "c", "d", "e"})", R"({"a" :1, "b" :"c", "d":null, "e":null})"},
      {R"({"a": , "b": })", R"({"a": null, "b": null})"},
      {R"({"a": [1, 2}, "b": 3})", R"({"a": [1, 2]})"},
      {R"({"a": {"b": [1, {"c": 2]}})", R"({"a": {"b": [1, {"c": 2}]}})"},
      {R"({"a": 1], "b": 2})", R"({"a": 1, "b": 2})"},
      {R"({{"a": 1}})", R"({"a": 1})"},
      {R"({{}, "a": 1})", R"({ "a": 1})"},
      // ends that are missing
      {R"({"a": "x)", R"({"a": "x"})"},
      {R"({"a": "x\)", R"({"a": "x\\"})"},
      {R"({"a": ["x", {"b": 12)", R"({"a": ["x", {"b": 12}]})"},
      {R"({"a": 1, "b)", R"({"a": 1, "b":null})"},
      {R"({"a": 1, )", R"({"a": 1})"},
      {R"({"a":)", R"({"a":null})"},
      {R"({a)", R"({"a":null})"},
      {R"({)", R"({})"},
  };
  for (const auto& [text, expected] : cases) {
    EXPECT_EQ(mended(text), expected) << text;
    EXPECT_EQ(mended(text, 1), expected) << text;
    EXPECT_NO_THROW(parsed(expected)) << expected;
  }
}

TEST(JsonMender, MakesAnObjectOfAnything) {
  const std::vector<std::string> parts = {"{",   "}",  "[",   "]",       "\"",  "'",      ":",        ",",    " ",
                                          "\n",  "\\", "\\u", "\\ud83d", "\\n", "\"a\":", "\"b\"",    "true", "None",
                                          "1",   "-",  "1e9", "x",       "é",   "\x01",   "\"k\": {", "[[",   "\", \"",
                                          "\":", "}}", "]]",  "\\\"",    "1,",  "\t",     "'q'",      "'k':", "null,"};
  std::mt19937 random(5);
  for (int round = 0; round < 20'000; ++round) {
    std::string text = "{";
    for (size_t i = random() % 30; i > 0; --i) text += parts[random() % parts.size()];
    const std::string whole = mended(text);
    ASSERT_EQ(mended(text, 1), whole) << text;
    ASSERT_EQ(mended(text, 1 + random() % 5), whole) << text;
    try {
      ASSERT_TRUE(parsed(whole).is_object()) << text;
    } catch (const JsonError& e) {
      FAIL() << e.what() << "\nof " << text << "\nas " << whole;
    }
  }
}

TEST(JsonMender, IsLinear) {
  const std::string deep = "{\"a\":" + std::string(200'000, '[') + std::string(200'000, ']') + "}";
  EXPECT_EQ(mended(deep), deep);
  std::string objects = "{";
  for (int i = 0; i < 50'000; ++i) objects += "\"a\":{";
  mended(objects + std::string(50'000, ']'));
  std::string quotes = "{\"a\": 1 ";
  for (int i = 0; i < 100'000; ++i) quotes += "x \" ";
  mended(quotes);
}

TEST(JsonMender, GivesWhatItHoldsIfTheAnswerIsCut) {
  for (const std::string text : {R"({"a": 12)", R"({"a": "x)", R"({"a": "x")", R"({"a": 1, )", R"({"a": "x" , )",
                                 R"({"a": "\u00)", R"({"a": "\)", R"({"a": "\ud83d)"}) {
    JsonMender mender;
    std::string out;
    for (std::string_view rest = text; !rest.empty();) rest.remove_prefix(mender.add(rest, out));
    mender.cut(out);
    EXPECT_EQ(out, text);
  }
}

TEST(MendedObjects, AreWholeTexts) {
  EXPECT_EQ(mended_object(" {\"a\": 1,} "), R"({"a": 1})");
  EXPECT_EQ(mended_object(""), "{}");
  EXPECT_EQ(mended_object("null"), "{}");
  for (const char* none : {"[1]", "5", "\"a\"", "{} x", "{}{}", "true"})
    EXPECT_EQ(mended_object(none), std::nullopt) << none;
  EXPECT_EQ(mended_string("\"a\nb\""), "a\nb");
  EXPECT_EQ(mended_string("5"), std::nullopt);
}

}  // namespace
}  // namespace quire
