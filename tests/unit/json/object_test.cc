#include "json/object.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace quire {
namespace {

JsonObject parse(std::string_view text) { return JsonObject::parse(text, "config.json"); }

std::string error_of(auto&& call) {
  try {
    call();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(JsonObject, GivesTypedValues) {
  const JsonObject o = parse(R"({"i":-3,"u":18446744073709551615,"f":1e-6,"w":10000,"b":true,"s":"x","n":null,
                                 "l":[1,2],"sl":["a"],"o":{"p":{"q":1}},"os":[{"k":1},{"k":2}]})");
  EXPECT_EQ(o.get<int32_t>("i"), -3);
  EXPECT_EQ(o.get<uint64_t>("u"), ~uint64_t{0});
  EXPECT_EQ(o.get<float>("f"), 1e-6f);
  EXPECT_EQ(o.get<double>("w"), 10000.0);
  EXPECT_TRUE(o.get<bool>("b"));
  EXPECT_EQ(o.get<std::string>("s"), "x");
  EXPECT_EQ(o.get<std::vector<int32_t>>("l"), (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(o.get<std::vector<float>>("l"), (std::vector<float>{1, 2}));
  EXPECT_EQ(o.get<std::vector<std::string>>("sl"), std::vector<std::string>{"a"});
  EXPECT_EQ(o.object("o").object("p").get<int32_t>("q"), 1);
  EXPECT_EQ(o.objects("os").at(1).get<int32_t>("k"), 2);
  EXPECT_FALSE(o.has("n"));
  EXPECT_EQ(o.get_or<int32_t>("n", 5), 5);
  EXPECT_EQ(o.optional<int32_t>("absent"), std::nullopt);
  EXPECT_EQ(o.optional<int32_t>("i"), -3);
  EXPECT_FALSE(o.optional_object("n").has_value());
}

TEST(JsonObject, OutlivesItsParent) {
  const JsonObject inner = parse(R"({"o":{"p":{"q":1}}})").object("o").object("p");
  EXPECT_EQ(inner.get<int32_t>("q"), 1);
}

TEST(JsonObject, SaysWhereAndWhat) {
  const JsonObject o = parse(R"({"rope":{"theta":"big","n":3000000000,"f":1e300,"half":0.5},"l":[1,"a"],
                                 "os":[{"k":true}, 1], "i": -1})");
  const JsonObject rope = o.object("rope");
  EXPECT_EQ(error_of([&] { rope.get<float>("theta"); }), "config.json: rope.theta: expected a number, found a string");
  EXPECT_EQ(error_of([&] { rope.get<int32_t>("absent"); }), "config.json: rope.absent is missing");
  EXPECT_EQ(error_of([&] { rope.get<int32_t>("n"); }),
            "config.json: rope.n: 3000000000 is out of range, allowed are -2147483648 to 2147483647");
  EXPECT_EQ(error_of([&] { rope.get<float>("f"); }), "config.json: rope.f: 1e+300 is out of range");
  EXPECT_EQ(error_of([&] { rope.get<int32_t>("half"); }),
            "config.json: rope.half: expected an integer, found a number with a fraction");
  EXPECT_EQ(error_of([&] { rope.get<bool>("half"); }),
            "config.json: rope.half: expected a boolean, found a number with a fraction");
  EXPECT_EQ(error_of([&] { o.get<std::string>("rope"); }), "config.json: rope: expected a string, found an object");
  EXPECT_EQ(error_of([&] { o.get<std::vector<int32_t>>("l"); }),
            "config.json: l[1]: expected an integer, found a string");
  EXPECT_EQ(error_of([&] { o.get<std::vector<int32_t>>("rope"); }),
            "config.json: rope: expected an array, found an object");
  EXPECT_EQ(error_of([&] { o.object("l"); }), "config.json: l: expected an object, found an array");
  EXPECT_EQ(error_of([&] { o.objects("os"); }), "config.json: os[1]: expected an object, found an integer");
  EXPECT_EQ(error_of([&] { o.get<uint32_t>("i"); }), "config.json: i: -1 is out of range, allowed are 0 to 4294967295");
  EXPECT_EQ(error_of([&] { o.get<int32_t>("a\"\n\xff"); }), "config.json: a\\\"\\x0a\\xff is missing");
}

TEST(CorruptJson, IsRefused) {
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
    EXPECT_NE(error_of([&] { parse(text); }).find("config.json"), std::string::npos) << text.substr(0, 40);
  }
  EXPECT_GE(broken.size(), 45u);
  parse("{\"a\":" + std::string(63, '[') + std::string(63, ']') + "}");
}

TEST(Json, TakesTheLastOfTwoEqualKeysUnlessTold) {
  EXPECT_EQ(parse(R"({"a":1,"a":2})").get<int32_t>("a"), 2);
  EXPECT_THROW(parse_json(R"({"a":1,"a":2})", "x", DuplicateKeys::kRefused), Error);
  EXPECT_THROW(parse_json(R"({"b":{"a":1,"a":2}})", "x", DuplicateKeys::kRefused), Error);
  EXPECT_NO_THROW(parse_json(R"({"b":{"a":1},"a":{"a":1}})", "x", DuplicateKeys::kRefused));
}

}  // namespace
}  // namespace quire
