#include "grammar/matcher.h"

#include <gtest/gtest.h>

#include <thread>

#include "accepts.h"
#include "error_of.h"

namespace quire::grammar {
namespace {

using nlohmann::ordered_json;

std::vector<TokenId> allowed(Matcher& matcher, size_t vocabulary) {
  std::vector<uint32_t> bits((vocabulary + 31) / 32, 0xFFFFFFFF);
  const size_t count = matcher.fill_mask(bits);
  std::vector<TokenId> ids;
  for (size_t id = 0; id < bits.size() * 32; ++id) {
    if (bits[id / 32] >> (id % 32) & 1) ids.push_back(static_cast<TokenId>(id));
  }
  EXPECT_EQ(ids.size(), count);
  return ids;
}

TEST(Matcher, EndTokensAreAllowedExactlyWhereTheTextIsComplete) {
  const auto bytes = Vocabulary::of_bytes();
  Matcher matcher(bytes, compile_regex("ab?"));
  EXPECT_EQ(allowed(matcher, 257), (std::vector<TokenId>{'a'}));
  EXPECT_FALSE(matcher.accepting());
  ASSERT_TRUE(matcher.advance('a'));
  EXPECT_EQ(allowed(matcher, 257), (std::vector<TokenId>{'b', 256}));
  EXPECT_TRUE(matcher.accepting());
  EXPECT_FALSE(matcher.must_end());
  ASSERT_TRUE(matcher.advance('b'));
  EXPECT_TRUE(matcher.must_end());
  EXPECT_EQ(matcher.forced_token(), 256);
  ASSERT_TRUE(matcher.advance(256));
  EXPECT_TRUE(allowed(matcher, 257).empty());
  EXPECT_FALSE(matcher.advance(256));
  EXPECT_TRUE(matcher.accepting());
}

TEST(Matcher, NoTokenLeadsWhereLookAheadLeavesNoText) {
  for (const char* pattern : {"(((?!)-|b))=", "(?:(?=-b)-|b)=", "(?:-(?!=)|b)="}) {
    Matcher matcher(Vocabulary::of_bytes(), compile_regex(pattern));
    EXPECT_EQ(allowed(matcher, 257), (std::vector<TokenId>{'b'})) << pattern;
    ASSERT_TRUE(matcher.advance('b'));
    EXPECT_EQ(matcher.forced_token(), '=') << pattern;
  }
}

TEST(Matcher, RefusedTokensChangeNothing) {
  Matcher matcher(Vocabulary::of_bytes(), compile_regex("ab"));
  EXPECT_FALSE(matcher.advance('b'));
  EXPECT_FALSE(matcher.advance(-1));
  EXPECT_FALSE(matcher.advance(300));
  EXPECT_FALSE(matcher.advance(256));
  EXPECT_TRUE(matcher.advance('a'));
}

TEST(Matcher, ForcedBytesStopAtAChoice) {
  const ordered_json schema = ordered_json::parse(
      R"({"type": "object", "properties": {"kind": {"enum": ["apple", "apricot"]}}, "required": ["kind"], "additionalProperties": false})");
  Matcher matcher(Vocabulary::of_bytes(), compile_json_schema(schema));
  EXPECT_EQ(matcher.forced_bytes(), "{");  // then perhaps a blank
  ASSERT_TRUE(matcher.advance_bytes("{\""));
  EXPECT_EQ(matcher.forced_bytes(), "kind\"");
  EXPECT_EQ(matcher.forced_bytes(3), "kin");
  ASSERT_TRUE(matcher.advance_bytes("kind\":\""));
  EXPECT_EQ(matcher.forced_bytes(), "ap");
}

TEST(Matcher, DeadEndsAreEmptyMasks) {
  const std::string_view texts[] = {"a", ""};
  const TokenId end[] = {1};
  Matcher matcher(Vocabulary::build(texts, {}, end), compile_regex("ab"));
  ASSERT_TRUE(matcher.advance(0));
  EXPECT_TRUE(allowed(matcher, 2).empty());
  EXPECT_FALSE(matcher.accepting());
}

TEST(Matcher, CopiesAreClones) {
  Matcher first(Vocabulary::of_bytes(), compile_regex("(ab|ac)+"));
  ASSERT_TRUE(first.advance('a'));
  Matcher second = first;
  ASSERT_TRUE(first.advance('b'));
  EXPECT_TRUE(first.accepting());
  EXPECT_FALSE(second.accepting());
  ASSERT_TRUE(second.advance('c'));
  EXPECT_TRUE(second.accepting());
}

TEST(Matcher, RollsBackManyTokens) {
  Matcher matcher(Vocabulary::of_bytes(), compile_regex("[ab]{1000}"));
  for (int i = 0; i < 900; ++i) ASSERT_TRUE(matcher.advance(i % 2 == 0 ? 'a' : 'b'));
  matcher.roll_back(Matcher::kMaxRollBack);
  for (int i = 0; i < 100 + Matcher::kMaxRollBack; ++i) ASSERT_TRUE(matcher.advance('a')) << i;
  EXPECT_TRUE(matcher.must_end());
}

TEST(Matcher, TokensOfOneTextAreTwins) {
  const std::string_view texts[] = {"a", "a", "b", ""};
  const TokenId end[] = {3};
  Matcher matcher(Vocabulary::build(texts, {}, end), compile_regex("a"));
  EXPECT_EQ(allowed(matcher, 4), (std::vector<TokenId>{0, 1}));
  EXPECT_TRUE(matcher.advance(1));
}

// A cache far too small for the grammar is dropped again and again; nothing else changes.
TEST(Matcher, AnswersDoNotDependOnTheCache) {
  const std::string_view pattern = "([a-z]{1,20},){1,50}[0-9]*(?:x[a-f]{3}y){0,20}";
  Limits small;
  small.cache_bytes = 20'000;
  const auto bytes = Vocabulary::of_bytes();
  Matcher plenty(bytes, compile_regex(pattern)), little(bytes, compile_regex(pattern, small));
  std::string text;
  for (int i = 0; i < 40; ++i)
    text += std::string(static_cast<size_t>(1 + i % 19), static_cast<char>('a' + i % 26)) + ",";
  text += "123xabcyxdefy";
  for (const char c : text) {
    ASSERT_EQ(allowed(plenty, 257), allowed(little, 257));
    ASSERT_TRUE(plenty.advance(c));
    ASSERT_TRUE(little.advance(c));
  }
  EXPECT_TRUE(little.accepting());
  little.roll_back(10);
  plenty.roll_back(10);
  EXPECT_EQ(allowed(plenty, 257), allowed(little, 257));
}

TEST(Matcher, CallsThatNeedTooMuchFailAndChangeNothing) {
  Limits limits;
  limits.mask_steps = 100;  // a mask looks at 256 bytes
  Matcher matcher(Vocabulary::of_bytes(), compile_regex("[ab]{2}c", limits));
  std::vector<uint32_t> bits(9);
  for (const char c : {'a', 'b', 'c'}) {
    EXPECT_NE(error_of([&] { matcher.fill_mask(bits); }).find("too many steps"), std::string::npos);
    ASSERT_TRUE(matcher.advance(c));
  }
  EXPECT_TRUE(matcher.must_end());
}

TEST(Matcher, ThreadsShareAGrammar) {
  const GrammarPtr grammar = compile_json_object();
  const auto bytes = Vocabulary::of_bytes();
  const std::string text = R"({"a": [1, 2.5e3, "x\u00e9"], "b": {"c": null}})";
  std::vector<std::thread> threads;
  std::atomic<int> accepted = 0;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      Matcher matcher(bytes, grammar);
      std::vector<uint32_t> bits(bytes->mask_words());
      for (const char c : text) {
        matcher.fill_mask(bits);
        if (!matcher.advance(static_cast<uint8_t>(c))) return;
      }
      if (matcher.must_end()) ++accepted;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(accepted, 4);
}

TEST(Composer, BuildsAToolCall) {
  const std::string_view texts[] = {
      "<tool_call>", "</tool_call>", "\n", "Hi ", "{\"name\": \"f\", \"arguments\": ", "{", "}", "\"x\"", ":", "1", ""};
  const SpecialToken special[] = {{0, "<tool_call>"}, {1, "</tool_call>"}};
  const TokenId end[] = {10};
  const auto vocabulary = Vocabulary::build(texts, special, end);
  Composer c;
  const std::string markers[] = {"<tool_call>"};
  const auto arguments = c.json_schema(ordered_json::parse(
      R"({"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"], "additionalProperties": false})"));
  const auto call = c.sequence({c.special("<tool_call>"), c.text("\n{\"name\": \"f\", \"arguments\": "), arguments,
                                c.text("}\n"), c.special("</tool_call>")});
  const GrammarPtr grammar = c.build(c.sequence({c.text_without(markers), c.repeat(call, 1, 2)}));
  Matcher matcher(vocabulary, grammar);
  for (const TokenId id : {3, 3, 0, 2, 4, 5, 7, 8, 9, 6, 6, 2, 1, 0, 2, 4, 5, 7, 8, 9, 6, 6, 2, 1})
    ASSERT_TRUE(matcher.advance(id)) << id;
  EXPECT_TRUE(matcher.must_end());
}

TEST(Composer, TextWithoutMarkersStopsBeforeThem) {
  const std::string markers[] = {"</think>", "STOP"};
  Composer c;
  const GrammarPtr grammar =
      c.build(c.sequence({c.text_without(markers), c.choice({c.text("</think>"), c.text("STOP")}), c.text("!")}));
  EXPECT_TRUE(accepts(grammar, "a </thin b </think>!"));
  EXPECT_TRUE(accepts(grammar, "STSTOP!"));
  EXPECT_FALSE(accepts(grammar, "a</think>b</think>!"));
  EXPECT_FALSE(accepts(grammar, "\xFF</think>!"));
}

TEST(Choice, AcceptsEachTextAndNothingElse) {
  const std::string choices[] = {"yes", "no", "not sure", "h\xC3\xA9"};
  const GrammarPtr grammar = compile_choice(choices);
  for (const std::string& choice : choices) EXPECT_TRUE(accepts(grammar, choice));
  EXPECT_FALSE(accepts(grammar, "n"));
  EXPECT_FALSE(accepts(grammar, "not"));
}

}  // namespace
}  // namespace quire::grammar
