#include "grammar/gbnf.h"

#include <gtest/gtest.h>

#include "accepts.h"
#include "error_of.h"

namespace quire::grammar {
namespace {

struct Case {
  const char* grammar;
  std::vector<const char*> yes, no;
};

TEST(Gbnf, AcceptsWhatTheRulesSay) {
  const Case cases[] = {
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
  for (const Case& c : cases) {
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

TEST(Gbnf, RefusesIndirectLeftRecursion) {
  EXPECT_NE(
      error_of([] { compile_gbnf("root ::= a\na ::= b \"x\" | \"y\"\nb ::= a \"z\" | \"w\""); }).find("left recursion"),
      std::string::npos);
  EXPECT_NE(error_of([] { compile_gbnf("root ::= a\na ::= \"\"? a \"x\" | \"y\""); }).find("left recursion"),
            std::string::npos);
}

}  // namespace
}  // namespace quire::grammar
