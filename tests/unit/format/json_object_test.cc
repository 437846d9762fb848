#include "format/json_object.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "format/hf_config.h"
#include "format/names.h"

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

EndTokens ends(std::string_view config, std::string_view generation) {
  HfConfig c{parse(config), std::nullopt, std::nullopt};
  if (!generation.empty()) c.generation = JsonObject::parse(generation, "generation_config.json");
  return end_tokens(c);
}

TEST(EndTokens, ComeFromTheGenerationConfigFirst) {
  EXPECT_EQ(ends(R"({"eos_token_id":2,"bos_token_id":1})", "").eos, TokenIds{2});
  EXPECT_EQ(ends(R"({"eos_token_id":2,"bos_token_id":1})", "").bos, 1);
  EXPECT_EQ(ends(R"({"eos_token_id":2,"bos_token_id":1})", R"({"eos_token_id":[5,6,5]})").eos, (TokenIds{5, 6}));
  EXPECT_EQ(ends(R"({"eos_token_id":2,"bos_token_id":1})", R"({"eos_token_id":[5,6]})").bos, 1);
  EXPECT_EQ(ends(R"({"text_config":{"eos_token_id":[7]}})", "").eos, TokenIds{7});
  EXPECT_EQ(ends(R"({"eos_token_id":null,"bos_token_id":-1})", "{}").bos, kNoToken);
  EXPECT_TRUE(ends("{}", "").eos.empty());
  EXPECT_EQ(error_of([] { ends("{}", R"({"eos_token_id":[1,"a"]})"); }),
            "generation_config.json: eos_token_id[1]: expected an integer, found a string");
  EXPECT_THROW(ends(R"({"eos_token_id":"</s>"})", ""), Error);
  EXPECT_THROW(ends(R"({"eos_token_id":4294967296})", ""), Error);
}

TEST(HfConfig, NeedsOnlyConfigJson) {
  const auto folder = std::filesystem::temp_directory_path() / "quire_hf_config";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  EXPECT_NE(error_of([&] { HfConfig::open(folder); }).find("config.json"), std::string::npos);
  std::ofstream(folder / "config.json") << R"({"model_type":"llama"})";
  EXPECT_EQ(HfConfig::open(folder).config.get<std::string>("model_type"), "llama");
  EXPECT_FALSE(HfConfig::open(folder).generation.has_value());
  std::ofstream(folder / "generation_config.json") << "{";
  EXPECT_NE(error_of([&] { HfConfig::open(folder); }).find("generation_config.json"), std::string::npos);
  std::filesystem::remove_all(folder);
}

TEST(Names, AreQuotedSafely) {
  EXPECT_EQ(quote("blk.0"), "\"blk.0\"");
  EXPECT_EQ(quote("\x1b[2J\"\\\xff\xe2\x96\x81"), "\"\\x1b[2J\\\"\\\\\\xff\xe2\x96\x81\"");
  EXPECT_EQ(quote(std::string(200, 'a')), "\"" + std::string(80, 'a') + "...\" (200 bytes)");
}

}  // namespace
}  // namespace quire
