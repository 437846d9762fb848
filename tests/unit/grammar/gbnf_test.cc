#include "grammar/gbnf.h"

#include <gtest/gtest.h>

#include "accepts.h"
#include "error_of.h"

namespace quire::grammar {
namespace {

struct GbnfCase {
  const char* grammar;
  std::vector<const char*> yes, no;
};

TEST(Gbnf, AcceptsWhatTheRulesSay) {
  const GbnfCase cases[] = {
      {"root ::= \"yes\" | \"no\"", {"yes", "no"}, {"", "y", "yesno"}},
      {"root ::= greeting (\",\" name){1,2} # comment\ngreeting ::= \"hi\"\nname ::= [a-z]+",
       {"hi,x", "hi,bob,al"},
       {"hi", "hi,a,b,c"}},
      {"root ::= item*\nitem ::= \"- \" [^\\r\\n\\x0b]+ \"\\n\"", {"", "- a\n", "- a\n- b c\n"}, {"- \n", "a"}},
      {"root ::= \"(\" root \")\" | \"x\"", {"x", "((x))"}, {"(x", "()", "x)"}},
      {"expr ::= expr \"+\" term | term\nterm ::= [0-9]+\nroot ::= expr", {"1", "1+22+3"}, {"+", "1+", ""}},
      {"root ::= .{2}", {"ab", "\xC3\xA9\n"}, {"a", "abc"}},
      {"root ::= [\\u00e0-\\u00ff\\U0001F600-] \"\\\"\\\\\"", {"\xC3\xA9\"\\", "-\"\\"}, {"e\"\\"}},
      {"root ::=\n  \"a\"\n  | \"b\"\n  \"c\"\n\n", {"a", "bc"}, {"b", "c"}},
      {"root ::= a b\na ::= \"x\"?\nb ::= a a \"y\"", {"y", "xy", "xxxy"}, {"xxxxy", "x"}},
      {"root ::= (\"a\" | \"\")*", {"", "aaa"}, {"b"}},
      {"root ::= \"a\"{,2} \"b\"{2,} \"c\"{3}", {"bbccc", "aabbbbccc"}, {"aaabbccc", "abccc", "bbcc"}},
      // Ambiguous, so that several ways of reading go on at once.
      {"root ::= s\ns ::= \"a\" s \"b\" | \"a\" s \"c\" | \"\"", {"", "ab", "aacb"}, {"a", "aab"}},
      {"root ::= as | bs\nas ::= \"a\" as \"x\" | \"e\"\nbs ::= \"a\" bs \"y\" | \"e\"", {"aaexx", "aaeyy"}, {"aaexy"}},
      {"root ::= s\ns ::= s s | \"a\" | \"(\" s \")\"", {"a", "aa(a)"}, {"", "()"}},
  };
  for (const GbnfCase& c : cases) {
    GrammarPtr grammar;
    ASSERT_EQ(error_of([&] { grammar = compile_gbnf(c.grammar); }), "") << c.grammar;
    for (const char* text : c.yes) EXPECT_TRUE(accepts(grammar, text)) << c.grammar << "\nshould accept " << text;
    for (const char* text : c.no) EXPECT_FALSE(accepts(grammar, text)) << c.grammar << "\nshould refuse " << text;
  }
}

TEST(Gbnf, DeepNestingNeedsNoMoreThanLinearMemory) {
  const GrammarPtr grammar = compile_gbnf("root ::= \"a\" root \"b\" | \"a\" root \"c\" | \"\"");
  std::string text(2000, 'a');
  for (int i = 0; i < 2000; ++i) text += i % 3 == 0 ? 'b' : 'c';
  EXPECT_TRUE(accepts(grammar, text));
  EXPECT_FALSE(accepts(grammar, text + "b"));
  EXPECT_LT(grammar->memory(), size_t{8} << 20);
}

TEST(Gbnf, SpecialTokensMatchOnlyThemselves) {
  const std::string_view texts[] = {"<", "think", ">", "x", "<think>", ""};
  const SpecialToken special[] = {{4, "<think>"}};
  const TokenId end[] = {5};
  const auto vocabulary = Vocabulary::build(texts, special, end);
  const GrammarPtr grammar = compile_gbnf("root ::= <think> \"x\"");
  Matcher matcher(vocabulary, grammar);
  EXPECT_EQ(matcher.forced_token(), 4);
  EXPECT_FALSE(matcher.advance(0));
  EXPECT_TRUE(matcher.advance(4));
  EXPECT_TRUE(matcher.advance(3));
  EXPECT_TRUE(matcher.advance(5));
  // Without such a token the spelling is text.
  EXPECT_TRUE(accepts(grammar, "<think>x"));
}

TEST(Gbnf, SkipsAByteOrderMark) { EXPECT_TRUE(accepts(compile_gbnf("\xEF\xBB\xBFroot ::= \"a\""), "a")); }

struct TokenCase {
  const char* grammar;
  std::vector<TokenIds> yes, no;
};

TEST(Gbnf, TokensAreNamedByNumberAndExcluded) {
  // 4 and 6 are special, 7 is a control token that no grammar below names, 5 ends.
  const std::string_view texts[] = {"a", "b", "ab", "\"", "", "", "", ""};
  const SpecialToken special[] = {{4, "<think>"}, {6, "</think>"}, {7, "<pad>"}};
  const TokenId end[] = {5};
  const auto vocabulary = Vocabulary::build(texts, special, end);
  const TokenCase cases[] = {
      {"root ::= <[2]> \"a\"", {{2, 0}}, {{0, 1, 0}, {2, 2}, {1}}},
      {"root ::= <[0]> <[4]>", {{0, 4}}, {{0, 6}, {0, 0}}},
      // A token by number is still text elsewhere.
      {"root ::= <[2]> \"c\" | \"ab\" | \"a\" <[1]> \"a\"", {{2}, {0, 1}, {0, 1, 0}}, {{2, 0}, {0}}},
      {"root ::= !<[2]> \"a\"", {{0, 0}, {3, 0}}, {{2, 0}, {5}, {7, 0}}},
      {"root ::= <think> !</think>* </think> \"b\"",
       {{4, 6, 1}, {4, 0, 3, 4, 2, 6, 1}},
       {{4, 6, 6}, {4, 5}, {4, 7}, {0}}},
  };
  for (const TokenCase& c : cases) {
    const auto takes = [&](const TokenIds& tokens) {
      Matcher matcher(vocabulary, compile_gbnf(c.grammar));
      for (const TokenId token : tokens) {
        uint32_t mask = 0;
        matcher.fill_mask({&mask, 1});
        const bool allowed = (mask >> token & 1) != 0;
        if (matcher.advance(token) != allowed) ADD_FAILURE() << c.grammar << ": the mask differs at " << token;
        if (!allowed) return false;
      }
      return matcher.accepting();
    };
    for (const TokenIds& tokens : c.yes) EXPECT_TRUE(takes(tokens)) << c.grammar << " " << tokens[0];
    for (const TokenIds& tokens : c.no) EXPECT_FALSE(takes(tokens)) << c.grammar << " " << tokens[0];
  }
  EXPECT_NE(
      error_of([&] { Matcher(vocabulary, compile_gbnf("root ::= <[8]>")); }).find("token 8, but the vocabulary has 8"),
      std::string::npos);
  EXPECT_NE(error_of([&] { Matcher(vocabulary, compile_gbnf("root ::= !<x>")); }).find("any token but <x>"),
            std::string::npos);
}

TEST(Gbnf, RefusesIndirectLeftRecursion) {
  EXPECT_NE(
      error_of([] { compile_gbnf("root ::= a\na ::= b \"x\" | \"y\"\nb ::= a \"z\" | \"w\""); }).find("left recursion"),
      std::string::npos);
  EXPECT_NE(error_of([] { compile_gbnf("root ::= a\na ::= \"\"? a \"x\" | \"y\""); }).find("left recursion"),
            std::string::npos);
}

}  // namespace
}  // namespace quire::grammar
