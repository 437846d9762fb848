#include "json/parse.h"

#include <gtest/gtest.h>

#include "error_of.h"
#include "json/field.h"

namespace quire {
namespace {

std::string error_in(std::string_view text) {
  return error_of([&] { parse_json(text, "config.json"); });
}

TEST(ParseJson, RefusesBrokenTextAndNamesTheFile) {
  std::string objects;
  for (int i = 0; i < 200'000; ++i) objects += R"({"a":)";
  const std::vector<std::string> broken = {"",
                                           " ",
                                           "{",
                                           "}",
                                           "{]",
                                           "[",
                                           "]",
                                           "nul",
                                           "{\"a\"}",
                                           "{\"a\":}",
                                           "{\"a\":1,}",
                                           "{,}",
                                           "{\"a\":1 \"b\":2}",
                                           "{a:1}",
                                           "{\"a\":'x'}",
                                           "{\"a\":01}",
                                           "{\"a\":+1}",
                                           "{\"a\":1.}",
                                           "{\"a\":.5}",
                                           "{\"a\":1e}",
                                           "{\"a\":NaN}",
                                           "{\"a\":Infinity}",
                                           "{\"a\":1e400}",
                                           "{\"a\":-1e400}",
                                           "{\"a\":\"",
                                           "{\"a\":\"\\x\"}",
                                           "{\"a\":\"\\u12\"}",
                                           "{\"a\":\"\\ud800\"}",
                                           "{\"a\":\"\\udc00\"}",
                                           "{\"a\":\"\n\"}",
                                           "{\"a\":\"\xff\"}",
                                           "{\"a\":\"\xc0\xaf\"}",
                                           "{\"a\":\"\xed\xa0\x80\"}",
                                           "{\"a\":\"\xf5\x80\x80\x80\"}",
                                           "{} {}",
                                           "{}//",
                                           "{/**/}",
                                           std::string("{\0}", 3),
                                           "\xef\xbb\xbf",
                                           "\xff\xfe{\0}\0",
                                           "1",
                                           "\"a\"",
                                           "[]",
                                           "null",
                                           "true",
                                           std::string(200'000, '['),
                                           "{\"a\":" + std::string(64, '['),
                                           objects,
                                           "{\"a\":" + std::string(64, '[') + std::string(64, ']') + "}"};
  for (const std::string& text : broken) {
    EXPECT_TRUE(error_of([&] { JsonField::parse(text, "config.json").object(); }).starts_with("config.json"))
        << text.substr(0, 40);
  }
  EXPECT_GE(broken.size(), 45u);
  JsonField::parse("{\"a\":" + std::string(63, '[') + std::string(63, ']') + "}", "config.json");
}

TEST(ParseJson, SaysLineColumnAndWhatWasExpected) {
  EXPECT_EQ(error_in("{\n  \"a\": 1,\n  \"bc\": [1] \"d\"\n}"), "config.json:3:13: expected ',' or '}'");
  EXPECT_EQ(error_in("{\"a\" 1}"), "config.json:1:6: expected ':'");
  EXPECT_EQ(error_in("{\"a\": [1 2]}"), "config.json:1:10: expected ',' or ']'");
  EXPECT_EQ(error_in("{\"a\": }"), "config.json:1:7: expected a value");
  EXPECT_EQ(error_in("[1, [] true]"), "config.json:1:8: expected ',' or ']'");
  EXPECT_EQ(error_in("{a: 1}"), "config.json:1:2: expected a value");
  EXPECT_EQ(error_in("{1: 1}"), "config.json:1:2: expected a key in double quotes or '}'");
  EXPECT_EQ(error_in("{\"a\": 1\n"), "config.json:2:1: expected ',' or '}'");
  EXPECT_EQ(error_in("{\"é\": 1 2}"), "config.json:1:9: expected ',' or '}'");
  EXPECT_EQ(error_in("{} {}"), "config.json:1:4: unexpected text after the end of the document");
  EXPECT_EQ(error_in(std::string_view("{\n\0}", 4)), "config.json:2:1: a zero byte");
  EXPECT_EQ(error_in("[1e999]"), "config.json:1:2: number out of range");
  EXPECT_EQ(error_in("[\"\xff\"]"), "config.json:1:3: invalid string: ill-formed UTF-8 byte");
  EXPECT_EQ(error_of([] { parse_json("[1", ""); }), "not valid JSON: line 1, column 3: expected ',' or ']'");
}

TEST(ParseJson, KeepsTheLastOfEqualKeysUnlessTheyAreRefused) {
  std::string many = "{";
  for (int i = 0; i < 100; ++i) many += "\"" + std::to_string(i) + "\":0,";
  for (const std::string& before : {std::string("{"), many}) {
    const std::string text = before + R"("a":1,"b":0,"a":2})";
    EXPECT_EQ(parse_json(text, "x")["a"], 2);
    EXPECT_EQ(error_of([&] { parse_json(text, "x", {.unique_keys = true}); }),
              "x: key \"a\" appears twice in one object");
  }
  EXPECT_THROW(parse_json(R"({"b":{"a":1,"a":2}})", "x", {.unique_keys = true}), JsonError);
  EXPECT_NO_THROW(parse_json(R"({"b":{"a":1},"a":{"a":1}})", "x", {.unique_keys = true}));
}

TEST(ParseJson, BoundsDepthAndValues) {
  EXPECT_EQ(error_of([] { parse_json("[[[1]]]", "x", {.depth = 2}); }), "x: JSON is nested deeper than 2 levels");
  EXPECT_EQ(error_of([] { parse_json("[1,2,3]", "x", {.values = 3}); }), "x: JSON has more than 3 values");
  EXPECT_NO_THROW(parse_json("[1,2,3]", "x", {.values = 4}));
}

TEST(ParseJson, ReplacesLoneSurrogatesIfAsked) {
  const auto read = [](std::string_view text) { return parse_json(text, "x", {.replace_surrogates = true}).dump(); };
  for (const auto& [text, expected] : std::vector<std::pair<std::string, std::string>>{
           {R"(["a\ud83d"])", "[\"a\uFFFD\"]"},                         // the text ends in the middle of a pair
           {R"(["\uD83D\uDE00", "\ud83d\ude00x"])", "[\"😀\",\"😀x\"]"},  // pairs stay
           {R"(["\ude00\ud83d"])", "[\"\uFFFD\uFFFD\"]"},
           {R"(["\ud83d\ud83d\ude00"])", "[\"\uFFFD😀\"]"},
           {R"(["\ud83d\u0041", "\ud83d\n", "\ud83d"])", "[\"\uFFFDA\",\"\uFFFD\\n\",\"\uFFFD\"]"},
           {R"({"\ud83d": {"\udc00k": 1}})", "{\"\uFFFD\":{\"\uFFFDk\":1}}"},
           {R"(["\\ud83d", "\\\ud83d"])", "[\"\\\\ud83d\",\"\\\\\uFFFD\"]"},           // an escaped backslash
           {"[\"\xED\xA0\xBD\", \"\xED\x9F\xBF\"]", "[\"\uFFFD\",\"\xED\x9F\xBF\"]"},  // as bytes; U+D7FF is none
       }) {
    EXPECT_EQ(read(text), expected) << text;
  }
  for (const char* broken :
       {R"(["\ud83)", R"(["\ud83d\)", R"(["\ud83d\u)", R"(["\ud83x"])", R"(["\u12"])", "[\"\xFF\"]"})
    EXPECT_THROW(read(broken), JsonError) << broken;
  EXPECT_THROW(parse_json(R"(["\ud83d"])", "x"), JsonError);
}

TEST(Describe, IsShortAndWellFormed) {
  EXPECT_EQ(describe(Json("a\n\"")), R"("a\n\"")");
  EXPECT_EQ(describe(Json(nullptr)), "null");
  EXPECT_EQ(describe(Json(true)), "true");
  EXPECT_EQ(describe(Json::array()), "an array");
  std::string accents;
  for (int i = 0; i < 100; ++i) accents += "é";
  EXPECT_EQ(describe(Json(accents)), "\"" + accents.substr(0, 64) + "\"…");
}

}  // namespace
}  // namespace quire
