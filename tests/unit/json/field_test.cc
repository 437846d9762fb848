#include "json/field.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "error_of.h"

namespace quire {
namespace {

JsonField parse(std::string_view text) { return JsonField::parse(text, "config.json"); }

TEST(JsonField, GivesTypedValues) {
  const JsonField o = parse(R"({"i":-3,"u":18446744073709551615,"f":1e-6,"w":10000,"b":true,"s":"x","n":null,
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
  EXPECT_EQ(o.at("o").at("p").get<int32_t>("q"), 1);
  EXPECT_EQ(o.at("os").at(1).get<int32_t>("k"), 2);
  EXPECT_FALSE(o.has("n"));
  EXPECT_EQ(o.get_or<int32_t>("n", 5), 5);
  EXPECT_EQ(o.optional<int32_t>("absent"), std::nullopt);
  EXPECT_EQ(o.optional<int32_t>("i"), -3);
  EXPECT_FALSE(o.find("n").has_value());
}

TEST(JsonField, OutlivesItsParent) {
  const JsonField inner = parse(R"({"o":{"p":{"q":1}}})").at("o").at("p");
  EXPECT_EQ(inner.get<int32_t>("q"), 1);
}

TEST(JsonField, NamesTheFieldWhatWasFoundAndWhatIsAllowed) {
  const JsonField o = parse(R"({"rope":{"theta":"big","n":3000000000,"f":1e300,"half":0.5},"l":[1,"a"],
                                 "os":[{"k":true}, 1], "i": -1, "odd key\n": {"a.b": 1}})");
  const JsonField rope = o.at("rope");
  EXPECT_EQ(error_of([&] { rope.get<float>("theta"); }), "config.json: rope.theta: expected a number, found \"big\"");
  EXPECT_EQ(error_of([&] { rope.get<int32_t>("absent"); }), "config.json: rope.absent is missing");
  EXPECT_EQ(error_of([&] { rope.get<int32_t>("n"); }),
            "config.json: rope.n: expected an integer from -2147483648 to 2147483647, found 3000000000");
  EXPECT_NE(error_of([&] { rope.get<float>("f"); }).find("config.json: rope.f: expected a number from "),
            std::string::npos);
  EXPECT_EQ(error_of([&] { rope.get<int32_t>("half"); }),
            "config.json: rope.half: expected an integer from -2147483648 to 2147483647, found 0.5");
  EXPECT_EQ(error_of([&] { rope.get<bool>("half"); }), "config.json: rope.half: expected true or false, found 0.5");
  EXPECT_EQ(error_of([&] { o.get<std::string>("rope"); }), "config.json: rope: expected a string, found an object");
  EXPECT_EQ(error_of([&] { o.get<std::vector<std::string>>("l"); }), "config.json: l[0]: expected a string, found 1");
  EXPECT_EQ(error_of([&] { o.get<std::vector<int32_t>>("rope"); }),
            "config.json: rope: expected an array, found an object");
  EXPECT_EQ(error_of([&] { o.at("l").at("x"); }), "config.json: l: expected an object, found an array");
  EXPECT_EQ(error_of([&] { o.at("os").at(1).object(); }), "config.json: os[1]: expected an object, found 1");
  EXPECT_EQ(error_of([&] { o.get<uint32_t>("i"); }),
            "config.json: i: expected an integer from 0 to 4294967295, found -1");
  EXPECT_EQ(error_of([&] { o.get<uint64_t>("i"); }),
            "config.json: i: expected an integer from 0 to 9223372036854775807, found -1");
  EXPECT_EQ(error_of([&] { o.get<int32_t>("a\"\n\xff"); }), "config.json: a\\\"\\x0a\\xff is missing");
  EXPECT_EQ(error_of([&] { o.at("odd key\n").get<bool>("a.b"); }),
            "config.json: odd key\\x0a.a.b: expected true or false, found 1");
  EXPECT_EQ(error_of([&] { o.at("l").array(1); }), "config.json: l: has 2 elements, at most 1 are allowed");
}

TEST(JsonField, WithoutAFileNameErrorsBeginWithTheField) {
  const auto body = JsonField::parse(R"({"messages": [{"role": 1}], "top_p": 1.5, "n": 16.0, "big": 1e30})", "");
  try {
    body.at("messages").at(0).at("role").string();
    FAIL();
  } catch (const JsonError& e) {
    EXPECT_STREQ(e.what(), "messages[0].role: expected a string, found 1");
    EXPECT_EQ(e.field(), "messages[0].role");
  }
  EXPECT_EQ(error_of([&] { body.at("top_p").number(0, 1); }), "top_p: expected a number from 0 to 1, found 1.5");
  EXPECT_EQ(error_of([&] { body.at("messages").number(0, 1); }),
            "messages: expected a number from 0 to 1, found an array");
  EXPECT_EQ(body.at("n").integer(1, 20), 16);
  EXPECT_EQ(error_of([&] { body.at("n").integer(1, 15); }), "n: expected an integer from 1 to 15, found 16.0");
  EXPECT_EQ(error_of([&] { body.at("big").integer(1, 15); }), "big: expected an integer from 1 to 15, found 1e+30");
  EXPECT_EQ(error_of([&] { body.at("absent"); }), "absent is missing");
  EXPECT_EQ(error_of([&] { body.string(); }), "expected a string, found an object");
}

TEST(JsonField, ParsesTheDocumentInAString) {
  const auto body = JsonField::parse(R"({"call": {"good": "{\"a\": [1]}", "bad": "{\"a\": 1"}})", "");
  EXPECT_EQ(body.at("call").at("good").parsed(), Json::parse(R"({"a": [1]})"));
  EXPECT_EQ(error_of([&] { body.at("call").at("bad").parsed(); }),
            "call.bad: not valid JSON: line 1, column 8: expected ',' or '}'");
}

TEST(JsonField, ListsMembersInTheFilesOrder) {
  std::string keys;
  for (const auto& [key, value] : parse(R"({"z":1,"a":null,"m":[]})").members()) keys += key;
  EXPECT_EQ(keys, "zam");
}

}  // namespace
}  // namespace quire
