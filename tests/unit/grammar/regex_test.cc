// The regex algebra and its derivatives.
#include "grammar/regex.h"

#include <gtest/gtest.h>

#include <random>
#include <regex>

#include "error_of.h"
#include "grammar/char_set.h"
#include "grammar/regex_syntax.h"

namespace quire::grammar {
namespace {

const Budget kPlenty{.steps = 10'000'000, .nodes = 1'000'000};

struct Regexes : ::testing::Test {
  RegexStore s{kPlenty};
  RegexId a = s.literal("a"), b = s.literal("b");
};

TEST_F(Regexes, EqualExpressionsAreOneNode) {
  EXPECT_EQ(s.any_of({a, s.literal("xy")}), s.any_of({s.literal("xy"), a, a}));
  EXPECT_EQ(s.any_of({a, b}), s.range('a', 'b'));
  EXPECT_EQ(s.concat(s.concat(a, b), a), s.concat(a, s.concat(b, a)));
  EXPECT_EQ(s.negate(s.negate(a)), a);
  EXPECT_EQ(s.repeat(s.repeat(a, 0, kUnbounded), 0, kUnbounded), s.repeat(a, 0, kUnbounded));
  EXPECT_EQ(s.repeat(a, 1, 1), a);
}

TEST_F(Regexes, SimplifyAroundNothingAndTheEmptyText) {
  EXPECT_EQ(s.concat(a, kNothing), kNothing);
  EXPECT_EQ(s.concat(kEmpty, a), a);
  EXPECT_EQ(s.any_of({kNothing, a}), a);
  EXPECT_EQ(s.any_of({}), kNothing);
  EXPECT_EQ(s.all_of({a, kNothing}), kNothing);
  EXPECT_EQ(s.all_of({a, s.negate(kNothing)}), a);
  EXPECT_EQ(s.repeat(kNothing, 0, 5), kEmpty);
  EXPECT_EQ(s.repeat(kNothing, 1, 5), kNothing);
}

TEST_F(Regexes, CountRepetitions) {
  const RegexId r = s.repeat(s.any_of({a, s.literal("bb")}), 2, 3);
  EXPECT_FALSE(s.matches(r, "a"));
  EXPECT_TRUE(s.matches(r, "aa"));
  EXPECT_TRUE(s.matches(r, "abba"));
  EXPECT_TRUE(s.matches(r, "bbbbbb"));
  EXPECT_FALSE(s.matches(r, "aaaa"));
  const RegexId of_empty = s.repeat(s.optional(a), 3, 4);  // a part that may be empty counts, too
  EXPECT_TRUE(s.matches(of_empty, ""));
  EXPECT_TRUE(s.matches(of_empty, "aaaa"));
  EXPECT_FALSE(s.matches(of_empty, "aaaaa"));
}

TEST_F(Regexes, IntersectAndComplement) {
  const RegexId any = s.negate(kNothing), has_a = s.concat({any, a, any});
  const RegexId even = s.repeat(s.concat(s.range('a', 'z'), s.range('a', 'z')), 0, kUnbounded);
  const RegexId both = s.all_of({has_a, even});
  EXPECT_TRUE(s.matches(both, "xa"));
  EXPECT_FALSE(s.matches(both, "xax"));
  EXPECT_FALSE(s.matches(both, "xy"));
  EXPECT_TRUE(s.matches(s.all_of({even, s.negate(has_a)}), "xy"));
}

TEST_F(Regexes, FindEmptyLanguages) {
  const RegexId as = s.repeat(a, 1, kUnbounded), bs = s.repeat(b, 1, kUnbounded);
  EXPECT_TRUE(s.is_empty(s.all_of({as, bs})));
  EXPECT_TRUE(s.is_empty(s.concat(b, s.all_of({as, bs}))));
  EXPECT_FALSE(s.is_empty(s.all_of({as, s.negate(bs)})));
  EXPECT_TRUE(s.is_empty(s.all_of({s.repeat(a, 3, 3), s.repeat(a, 4, 9)})));
  // No derivative leads into a dead end.
  const RegexId r = s.all_of({s.any_of({s.literal("ab"), s.literal("cd")}), s.negate(s.literal("ab"))});
  s.classes();
  EXPECT_EQ(s.derivative(r, s.class_of('a')), kNothing);
  EXPECT_NE(s.derivative(r, s.class_of('c')), kNothing);
}

TEST_F(Regexes, MatchOneOfManyTexts) {
  std::vector<std::string> texts{"", "a", "ab", "abc", "b", "\xFF\x01"};
  const RegexId r = s.one_of(texts);
  for (const std::string& text : texts) EXPECT_TRUE(s.matches(r, text)) << text;
  for (const char* text : {"c", "abcd", "ac", "\xFF"}) EXPECT_FALSE(s.matches(r, text)) << text;
  EXPECT_EQ(s.one_of({}), kNothing);
}

TEST_F(Regexes, DivideDecimals) {
  const RegexId by_7 = s.multiple(7, 0), by_quarter = s.multiple(25, 2);
  for (int i = 0; i < 200; ++i) EXPECT_EQ(s.matches(by_7, std::to_string(i)), i % 7 == 0) << i;
  for (const char* text : {"0", "1", "0.25", "0.250", "12.5", "3.75", "7.00"})
    EXPECT_TRUE(s.matches(by_quarter, text)) << text;
  for (const char* text : {"0.2", "0.26", "0.251", "1.1"}) EXPECT_FALSE(s.matches(by_quarter, text)) << text;
}

TEST_F(Regexes, ImportIntoAnotherStore) {
  const RegexId r = s.all_of({s.concat(s.repeat(s.range('a', 'f'), 2, 9), s.optional(b)), s.negate(s.literal("abab"))});
  RegexStore other{kPlenty};
  other.literal("something else");
  std::vector<RegexId> memo(s.size(), RegexStore::kUnknown);
  const RegexId there = other.import(s, r, memo);
  for (const char* text : {"aa", "abab", "fffb", "", "a", "aaaaaaaaaab", "aaaaaaaaaaab"})
    EXPECT_EQ(s.matches(r, text), other.matches(there, text)) << text;
}

TEST(RegexBudget, EndsWhatWouldExplode) {
  RegexStore s{Budget{.steps = 20'000, .nodes = 5'000}};
  const RegexId ab = s.range('a', 'b'), any = s.repeat(ab, 0, kUnbounded);
  const RegexId r = s.concat({any, s.literal("a"), s.repeat(ab, 40, 40)});  // 2^40 states
  const std::string error = error_of([&] {
    std::mt19937 random(1);
    for (int i = 0; i < 100; ++i) {
      std::string text;
      for (int j = 0; j < 200; ++j) text += random() % 2 == 0 ? 'a' : 'b';
      s.matches(r, text);
    }
  });
  EXPECT_NE(error.find("too many steps or states"), error.npos) << error;
}

TEST(RegexBudget, StopsWhenAsked) {
  std::stop_source source;
  RegexStore s{Budget{.steps = 1'000'000'000, .nodes = 1'000'000'000, .stop = source.get_token()}};
  source.request_stop();
  const std::string error = error_of([&] {
    for (int i = 0; i < 100'000; ++i) s.repeat(s.literal("ab"), static_cast<uint32_t>(i), kUnbounded);
  });
  EXPECT_NE(error.find("was stopped"), error.npos) << error;
}

// Random regexes over a small alphabet agree with std::regex on random texts.
TEST(RegexSyntax, AgreesWithTheStandardLibrary) {
  std::mt19937 random(7);
  const auto pick = [&](unsigned n) { return random() % n; };
  std::function<std::string(int)> make = [&](int depth) -> std::string {
    switch (depth == 0 ? pick(4) : pick(9)) {
      case 0:
        return "a";
      case 1:
        return "b";
      case 2:
        return "[ab]";
      case 3:
        return ".";
      case 4:
        return make(depth - 1) + make(depth - 1);
      case 5:
        return "(?:" + make(depth - 1) + "|" + make(depth - 1) + ")";
      case 6:
        return "(" + make(depth - 1) + ")*";
      case 7:
        return "(?:" + make(depth - 1) + "){1,2}";
      default:
        return "(?:" + make(depth - 1) + ")?";
    }
  };
  for (int round = 0; round < 300; ++round) {
    const std::string pattern = make(3);
    RegexStore s{kPlenty};
    CharEncoder encoder(s);
    const RegexId r = parse_regex(pattern, Anchoring::kWhole, Encoding::kUtf8, encoder, s, "test", 50);
    const RegexId found = parse_regex(pattern, Anchoring::kAnywhere, Encoding::kUtf8, encoder, s, "test", 50);
    const std::regex oracle(pattern, std::regex::ECMAScript);
    for (int i = 0; i < 30; ++i) {
      std::string text;
      for (unsigned n = pick(8); n > 0; --n) text += "abc"[pick(3)];
      EXPECT_EQ(s.matches(r, text), std::regex_match(text, oracle)) << pattern << " on " << text;
      EXPECT_EQ(s.matches(found, text), std::regex_search(text, oracle)) << pattern << " in " << text;
    }
  }
}

struct RegexCase {
  const char* pattern;
  std::vector<const char*> yes, no;
};

void check_regex(const RegexCase& c, Anchoring anchoring, Encoding encoding) {
  RegexStore s{kPlenty};
  CharEncoder encoder(s);
  const RegexId r = parse_regex(c.pattern, anchoring, encoding, encoder, s, "test", 50);
  for (const char* text : c.yes) EXPECT_TRUE(s.matches(r, text)) << c.pattern << " should match " << text;
  for (const char* text : c.no) EXPECT_FALSE(s.matches(r, text)) << c.pattern << " should not match " << text;
}

TEST(RegexSyntax, AnchorsAndLookAheadAreExact) {
  const RegexCase cases[] = {
      {"^ab$", {"ab"}, {"xab", "abx", ""}},
      {"^a|b$", {"ax", "xb", "a", "b"}, {"xa", "bx"}},
      {"a", {"a", "xa", "ax"}, {"", "x"}},
      {"(^|,)x(,|$)", {"x", "a,x", "x,b", "a,x,b"}, {"ax", "xb"}},
      {"^(?!foo)[a-z]+$", {"bar", "fo"}, {"foo", "foobar", ""}},
      {"^(?=.*[0-9])(?=.*[a-z]).{3,5}$", {"a1b", "123a", "abcd5"}, {"abc", "123", "a1", "a12345"}},
      {"^a(?=b)", {"ab", "abc"}, {"a", "ac"}},
      {"^(a$|b)", {"a", "b", "bx"}, {"ax"}},
      {"", {"", "x"}, {}},
      {"^$", {""}, {"x"}},
  };
  for (const RegexCase& c : cases) check_regex(c, Anchoring::kAnywhere, Encoding::kUtf8);
}

TEST(RegexSyntax, ReadsClassesAndEscapes) {
  const RegexCase cases[] = {
      {"[a-c\\d_]+", {"a", "b7_"}, {"d", "-"}},
      {"[^a]", {"b", "\xC3\xA9", "\n"}, {"a", "", "\xC3"}},
      {"[\\w-.]", {"-", ".", "x"}, {","}},
      {"[]a]", {}, {"a", "]a]"}},
      {"[^]", {"a", "\xF0\x9F\x98\x80"}, {""}},
      {"\\u00e9\\x41\\t",
       {"\xC3\xA9"
        "A\t"},
       {"eA\t"}},
      {"\\u{1F600}|\\uD83D\\uDE00x", {"\xF0\x9F\x98\x80", "\xF0\x9F\x98\x80x"}, {"x"}},
      {"\\p{Lu}\\P{L}", {"A1", "\xC3\x89-"}, {"aa", "AA"}},
      {"a{2}b{,3}", {"aab{,3}"}, {"aabb"}},
      {"\\/\\-\\.", {"/-."}, {"/-x"}},
      {"a*?b+?", {"b", "aabb"}, {"a"}},
      {".", {"x", "\xE2\x82\xAC"}, {"\n", "\xE2\x80\xA8"}},
      {"\\s", {" ", "\xC2\xA0"}, {"x"}},
      {"(?<year>\\d{4})", {"2026"}, {"26"}},
  };
  for (const RegexCase& c : cases) check_regex(c, Anchoring::kWhole, Encoding::kUtf8);
}

TEST(RegexSyntax, MatchesTheCharactersOfJsonStrings) {
  const RegexCase cases[] = {
      {"^.$",
       {"a", "\\\"", "\\\\", "\\u00e9", "\xC3\xA9", "\\ud83d\\ude00", "\\t"},
       {"ab", "\"", "\\", "\n", "\\ud83d", "\\n"}},
      {"^[\\n\"]$", {"\\n", "\\\"", "\\u000a", "\\u000A"}, {"\n", "n", "\\t"}},
      {"^[^x]{2}$", {"ab", "\\\\\\\\"}, {"x", "ax", "\\\\"}},
      {"^[\\u{1F600}-\\u{1F64F}]$", {"\xF0\x9F\x98\x80", "\\ud83d\\ude4f"}, {"\\ud83d\\ude50", "\\ude00"}},
  };
  for (const RegexCase& c : cases) check_regex(c, Anchoring::kAnywhere, Encoding::kJson);
}

}  // namespace
}  // namespace quire::grammar
