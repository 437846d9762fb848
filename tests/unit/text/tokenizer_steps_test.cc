#include <gtest/gtest.h>

#include <ctime>

#include "base/error.h"
#include "base/text/unicode.h"
#include "text/detokenizer_steps.h"
#include "text/normalizer.h"
#include "text/tokenizer/added_tokens.h"
#include "text/tokenizer/pretokenizer.h"
#include "tokenizer_samples.h"

namespace quire {
namespace {

using Words = std::vector<std::string>;

Words words(std::vector<PreTokenizerStep> steps, std::string_view text, bool at_start = true) {
  PreTokenizerScratch scratch;
  Words found;
  PreTokenizer{std::move(steps)}.split(text, at_start, scratch,
                                       [&](std::string_view word) { found.emplace_back(word); });
  return found;
}

// The examples of Hugging Face's documentation.
TEST(Split, TreatsMatchesAsTheBehaviorRequires) {
  const auto split = [](SplitBehavior b) { return words({SplitByText{"-", b}}, "the-final--countdown"); };
  EXPECT_EQ(split(SplitBehavior::kRemoved), (Words{"the", "final", "countdown"}));
  EXPECT_EQ(split(SplitBehavior::kIsolated), (Words{"the", "-", "final", "-", "-", "countdown"}));
  EXPECT_EQ(split(SplitBehavior::kMergedWithPrevious), (Words{"the-", "final-", "-", "countdown"}));
  EXPECT_EQ(split(SplitBehavior::kMergedWithNext), (Words{"the", "-final", "-", "-countdown"}));
  EXPECT_EQ(split(SplitBehavior::kContiguous), (Words{"the", "-", "final", "--", "countdown"}));
}

TEST(Split, InvertsItsPattern) {
  EXPECT_EQ(words({SplitByRegex{.regex = Regex("[a-z]+", ""), .behavior = SplitBehavior::kRemoved, .invert = true}},
                  "12ab34cd"),
            (Words{"ab", "cd"}));
}

TEST(Split, GroupsDigitsByThreeFromTheRight) {
  const auto split = [](std::string_view text) {
    return words({SplitByRegex{.regex = Regex("[0-9]+", ""), .groups_of_three = true}}, text);
  };
  EXPECT_EQ(split("a1234567b"), (Words{"a", "1", "234", "567", "b"}));
  EXPECT_EQ(split("12345"), (Words{"12", "345"}));
  EXPECT_EQ(split("123"), (Words{"123"}));
}

TEST(RegexMatcher, MatchesWordCharactersAsOnigurumaDoes) {
  const auto split = [](const char* pattern, std::string_view text) {
    return words({SplitByRegex{.regex = Regex(pattern, "")}}, text);
  };
  EXPECT_EQ(split(R"(\w+)", "e\u0301a ก็ก Ⅷ①½⅓"), (Words{"e\u0301a", " ", "ก็ก", " ", "Ⅷ", "①", "½", "⅓"}));
  EXPECT_EQ(split(R"(\W+)", "e\u0301①⅓a"), (Words{"e\u0301", "①⅓", "a"}));
  EXPECT_EQ(split(R"([^\w\s]+)", "a①! e\u0301"), (Words{"a", "①!", " e\u0301"}));
  EXPECT_EQ(split(R"(\b)", "e\u0301a, b"), (Words{"e\u0301a", ", ", "b"}));
  EXPECT_EQ(split(R"(\B)", "ab, "), (Words{"a", "b,", " "}));
  EXPECT_EQ(split(R"(\W+)", "a½!"), (Words{"a½", "!"}));
  EXPECT_EQ(split(R"([^\w]+)", "a½!"), (Words{"a", "½!"}));
  EXPECT_EQ(split(R"(\b)", "!½!a½"), (Words{"!", "½", "!", "a½"}));
  EXPECT_THROW(Regex(R"([^\W])", "where"), Error);
}

// As in Oniguruma: an empty match cuts too, unless it directly follows another match.
TEST(Split, CutsAtEmptyMatches) {
  const auto split = [](const char* pattern, std::string_view text, SplitBehavior b = SplitBehavior::kIsolated) {
    return words({SplitByRegex{.regex = Regex(pattern, ""), .behavior = b}}, text);
  };
  EXPECT_EQ(split("(?=[A-Z])", "oneTwoÉThree"), (Words{"one", "TwoÉ", "Three"}));
  EXPECT_EQ(split("(?=[A-Z])", "oneTwo", SplitBehavior::kMergedWithNext), (Words{"one", "Two"}));
  EXPECT_EQ(split("", "aéb"), (Words{"a", "é", "b"}));
  EXPECT_EQ(split("", "aéb", SplitBehavior::kRemoved), (Words{"a", "é", "b"}));
  EXPECT_EQ(split("a*", "baac"), (Words{"b", "aa", "c"}));
  EXPECT_EQ(split("$", "ab"), (Words{"ab"}));
}

TEST(Normalizer, ReplacesEmptyMatches) {
  Regex::Matcher matcher;
  EXPECT_EQ((Normalizer{{ReplaceRegex{Regex("^", ""), "_"}}}.apply("ab", matcher)), "_ab");
  EXPECT_EQ((Normalizer{{ReplaceRegex{Regex("", ""), "_"}}}.apply("éb", matcher)), "_é_b_");
  EXPECT_EQ((Normalizer{{ReplaceRegex{Regex("", ""), "_"}}}.apply("", matcher)), "");
}

// Without bounds the first runs for minutes, the second for hours.
TEST(Steps, EndWhenTheyTakeTooLong) {
  EXPECT_THROW(words({SplitByRegex{.regex = Regex("a(?=a*b)|a", "")}}, std::string(400000, 'a')), Error);
  EXPECT_THROW(AddedTokens({{.content = std::string(100000, 'a')}}, AddedTokens::Order::kLeftmostLongest), Error);
  const AddedTokens space({{.content = " ", .id = 1, .rstrip = true}}, AddedTokens::Order::kLeftmostLongest);
  std::vector<Fragment> fragments;
  space.split(std::string(1000000, ' '), {}, fragments);
  EXPECT_EQ(fragments.front().text.size(), 1000000u);
}

// Each match alone stays below the limits, or takes the interpreter minutes. All matches of a text have one budget, also
// if earlier steps have cut the text into words.
TEST(RegexMatcher, GivesUpOnHostilePatterns) {
  const struct {
    const char* pattern;
    std::string text;
  } kCases[] = {
      {"(?:a?){5000}a{5000}", std::string(5000, 'a')},
      {"(?:a?){5000}a{5000}", std::string(30, 'a')},
      {R"((?:\p{L}?){5000}\p{L}{5000})", std::string(4000, 'a')},
      {"(?:a?){24}a{24}", std::string(24 * 1000, 'a')},
      {"(?:a|a|b?)*c", std::string(30, 'a')},
      {"((a)*)*(?1)?b", std::string(3000, 'a')},
      {"(?:(?:a{0,9}){0,9}){0,9}b", std::string(2000, 'a')},
  };
  const auto seconds = [] { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; };
  for (const auto& c : kCases) {
    for (const bool in_words : {false, true}) {
      std::vector<PreTokenizerStep> steps;
      std::string text = c.text;
      if (in_words) {
        steps.emplace_back(SplitByText{" ", SplitBehavior::kRemoved, false});
        for (int i = 0; i < 200; ++i) text += " " + c.text.substr(0, 100);
      }
      steps.emplace_back(SplitByRegex{.regex = Regex(c.pattern, "")});
      const double start = seconds();
      try {
        words(steps, text);
      } catch (const Error&) {
      }
      EXPECT_LT(seconds() - start, 5) << c.pattern;
    }
  }
}

// A text that doubles forty times.
TEST(Steps, EndWhenATextGrowsWithoutBound) {
  Regex::Matcher matcher;
  const std::vector<NormalizerStep> doubling(40, ReplaceText{"a", "aa"});
  EXPECT_THROW(Normalizer{doubling}.apply("a", matcher), Error);
  DecodeRules rules;
  rules.steps.assign(40, DecodeReplace{"a", "aa"});
  EXPECT_THROW(rules.bytes_of("a", false, matcher), Error);
  EXPECT_THROW(words(std::vector<PreTokenizerStep>(40, ToAlphabet{}), "é"), Error);
}

TEST(Split, SupportsClassesWordsAndLengths) {
  EXPECT_EQ(words({SplitWords{}}, "Hey, you!  é"), (Words{"Hey", ",", "you", "!", "é"}));
  EXPECT_EQ(words({SplitByClass{is_numeric}}, "a12"), (Words{"a", "1", "2"}));
  EXPECT_EQ(words({SplitByClass{is_numeric, SplitBehavior::kContiguous}}, "a12"), (Words{"a", "12"}));
  EXPECT_EQ(words({SplitByLength{2}}, "aébcd"), (Words{"aé", "bc", "d"}));
  EXPECT_EQ(words({Metaspace{}}, "a b"), (Words{"▁a", "▁b"}));
  EXPECT_EQ(words({Metaspace{"▁", Metaspace::Prepend::kFirst, false}}, "a b"), (Words{"▁a▁b"}));
  EXPECT_EQ(words({Metaspace{"▁", Metaspace::Prepend::kFirst, false}}, "a b", false), (Words{"a▁b"}));
  EXPECT_EQ(words({AddPrefixSpace{}, ToAlphabet{}}, "a\n"), (Words{"ĠaĊ"}));
}

TEST(RegexMatcher, MatchesUnicodeWhiteSpace) {
  // U+0085 is white space; U+180E is not since Unicode 6.3.
  EXPECT_EQ(words({SplitByRegex{.regex = Regex(R"(\s+)", "")}}, "a\u0085b\u180Ec"), (Words{"a", "\u0085", "b\u180Ec"}));
  EXPECT_EQ(words({SplitByRegex{.regex = Regex(R"([^\s]+)", "")}}, "a\u0085b\u180Ec"),
            (Words{"a", "\u0085", "b\u180Ec"}));
  EXPECT_EQ(words({SplitByRegex{.regex = Regex(R"([x\S])", "")}}, "a "), (Words{"a", " "}));
}

TEST(RegexMatcher, GivesUpOnAPatternThatTakesForever) {
  const std::string text(60, 'a');
  EXPECT_THROW(words({SplitByRegex{.regex = Regex("(a*)*(a*)*(a*)*[bc]", "")}}, text), Error);
}

TEST(RegexMatcher, MatchesWordsOfAMegabyte) {
  const std::string text(1 << 20, 'a');
  // A repeated group takes memory for each repetition; long words must still match.
  EXPECT_EQ(words({SplitByRegex{.regex = Regex("(?:a|b)+", "")}}, text.substr(0, 200000)).size(), 1u);
  for (const char* pre : {"gpt-2", "llama-bpe", "tekken", "gpt-4o", "deepseek-v3", "exaone-moe", "kimi-k2", "falcon"}) {
    EXPECT_EQ(words(gguf_pretokenizer(pre, "test").steps.steps, text).size(), 1u) << pre;
  }
}

TEST(GgufPreTokenizer, CompilesEveryPatternAndRefusesOtherNames) {
  for (const char* pre :
       {"default",     "llama3",   "llama-v3",   "dbrx",       "qwen2",     "qwen35",       "olmo",
        "starcoder",   "refact",   "command-r",  "smollm",     "falcon",    "deepseek-llm", "deepseek-coder",
        "deepseek-v3", "spark2_5", "tekken",     "gpt-4o",     "tiny_aya",  "kimi-k2",      "bloom",
        "viking",      "jais-2",   "bailingmoe", "seed-coder", "ufakzeka",  "minicpm5",     "laguna",
        "exaone-moe",  "afmoe",    "chameleon",  "gemma4",     "sarvam-moe"}) {
    Words joined = words(gguf_pretokenizer(pre, "test").steps.steps, "Hello, World's 12345 ~x\n\n é日本語  end ");
    std::string text;
    for (const std::string& word : joined) text += word;
    EXPECT_EQ(text, "Hello, World's 12345 ~x\n\n é日本語  end ") << pre;
  }
  try {
    gguf_pretokenizer("gpt-9", "file.gguf");
    FAIL();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "file.gguf: unknown pre-tokenizer \"gpt-9\" (tokenizer.ggml.pre)");
  }
  EXPECT_THROW(gguf_pretokenizer("llama3 dbrx", "file.gguf"), Error);
}

TEST(GgufPreTokenizer, GroupsDigitsAndCutsCase) {
  const auto split = [](const char* pre, std::string_view text) {
    return words(gguf_pretokenizer(pre, "test").steps.steps, text);
  };
  EXPECT_EQ(split("tiny_aya", "12345 x"), (Words{"12", "345", " x"}));
  EXPECT_EQ(split("llama-bpe", "12345 I'LL"), (Words{"123", "45", " I", "'LL"}));
  EXPECT_EQ(split("qwen2", "12 a"), (Words{"1", "2", " a"}));
  EXPECT_EQ(split("gpt-4o", "HelloWorld's"), (Words{"Hello", "World's"}));
  EXPECT_EQ(split("tekken", "HelloWorld's"), (Words{"Hello", "World", "'s"}));
  EXPECT_EQ(split("deepseek-v3", "a ~~ !!"), (Words{"a", " ", "~~", " !!"}));  // ~ is not a symbol in llama.cpp
  EXPECT_EQ(split("kimi-k2", "日本x語"), (Words{"日本", "x", "語"}));
}

std::string normalized(NormalizerStep step, std::string_view text) {
  Regex::Matcher matcher;
  return Normalizer{{std::move(step)}}.apply(text, matcher);
}

TEST(Normalizer, AppliesEachStep) {
  EXPECT_EQ(normalized(NormalizeForm{UnicodeForm::kNfc}, "e\u0301"), "é");
  EXPECT_EQ(normalized(NormalizeForm{UnicodeForm::kNfd}, "é"), "e\u0301");
  EXPECT_EQ(normalized(NormalizeForm{UnicodeForm::kNfkc}, "ﬁ①"), "fi1");
  EXPECT_EQ(normalized(NormalizeForm{UnicodeForm::kNfd}, "a\u0301\u0323"), "a\u0323\u0301");  // ordered by class
  EXPECT_EQ(normalized(NormalizeForm{UnicodeForm::kNfc}, std::string_view("e\u0301\0x", 5)), std::string("é\0x", 4));
  EXPECT_EQ(normalized(Prepend{"_"}, "a"), "_a");
  EXPECT_EQ(normalized(Prepend{"_"}, ""), "");
  EXPECT_EQ(normalized(ReplaceText{"aa", "b"}, "aaaax"), "bbx");
  EXPECT_EQ(normalized(ReplaceRegex{Regex(" {2,}", ""), "_"}, "a  b   c d"), "a_b_c d");
  EXPECT_EQ(normalized(Lowercase{}, "ÀÉZİ"), "àézi\u0307");
  EXPECT_EQ(normalized(StripSpace{}, " \u00A0a b\n"), "a b");
  EXPECT_EQ(normalized(StripSpace{.left = true, .right = false}, " a "), "a ");
  EXPECT_EQ(normalized(StripAccents{}, "e\u0301"), "e");
  EXPECT_EQ(normalized(Nmt{}, "a\u200Bb\x01\tc"), "a b c");
  EXPECT_EQ(normalized(BertClean{}, "É 中\tX"), "e  中  x");
  EXPECT_EQ(normalized(NormalizeToAlphabet{}, "a "), "aĠ");
}

TEST(Normalizer, OrdersAMegabyteOfMarks) {  // quadratic time would take hours
  std::string text = "e";
  while (text.size() < 1 << 20) text += "\u0301\u0327";
  EXPECT_EQ(normalized(NormalizeForm{UnicodeForm::kNfd}, text).size(), text.size());
}

Words fragments(const AddedTokens& added, std::string_view text, bool parse_special = true) {
  std::vector<Fragment> found;
  added.split(text, {.parse = parse_special}, found);
  Words result;
  for (const Fragment& f : found) {
    result.push_back(f.id == kNoToken ? std::string(f.text)
                                      : "[" + std::to_string(f.id) + ":" + std::string(f.text) + "]");
  }
  return result;
}

TEST(AddedTokens, AreFoundLeftmostAndLongest) {
  const AddedTokens added({{.content = "ab", .id = 1}, {.content = "abc", .id = 2}, {.content = "cd", .id = 3}},
                          AddedTokens::Order::kLeftmostLongest);
  EXPECT_EQ(fragments(added, "xabcdab"), (Words{"x", "[2:abc]", "d", "[1:ab]"}));
}

TEST(AddedTokens, OfEqualSpellingTheFirstOneWins) {
  const AddedTokens added({{.content = "a", .id = 7}, {.content = "a", .id = 3}}, AddedTokens::Order::kLeftmostLongest);
  EXPECT_EQ(fragments(added, "a"), (Words{"[7:a]"}));
}

TEST(AddedTokens, AreSkippedInsideWhatAnEarlierTokenIncludes) {
  const AddedTokens added({{.content = "</s>", .id = 1, .rstrip = true}, {.content = " ", .id = 2, .lstrip = true}},
                          AddedTokens::Order::kLeftmostLongest);
  EXPECT_EQ(fragments(added, "</s>  x "), (Words{"[1:</s>  ]", "x", "[2: ]"}));
}

TEST(AddedTokens, AreFoundLongestFirstAsInLlamaCpp) {
  const AddedTokens added({{.content = "ab", .id = 1}, {.content = "bcde", .id = 2}, {.content = "a", .id = 3}},
                          AddedTokens::Order::kLongestFirst);
  EXPECT_EQ(fragments(added, "abcdeab"), (Words{"[3:a]", "[2:bcde]", "[1:ab]"}));
}

TEST(AddedTokens, ArePlainTextWhenSpecialTokensAreNotParsed) {
  for (auto order : {AddedTokens::Order::kLeftmostLongest, AddedTokens::Order::kLongestFirst}) {
    const AddedTokens added({{.content = "<s>", .id = 1, .special = true}, {.content = "<t>", .id = 2}}, order);
    EXPECT_EQ(fragments(added, "<s><t>", false), (Words{"<s>", "[2:<t>]"}));
    EXPECT_EQ(fragments(added, "<s><t>", true), (Words{"[1:<s>]", "[2:<t>]"}));
  }
}

TEST(AddedTokens, IncludeSpacesAndStayOutOfWords) {
  const AddedTokens added({{.content = "<l>", .id = 1, .lstrip = true},
                           {.content = "<r>", .id = 2, .rstrip = true},
                           {.content = "word", .id = 3, .single_word = true}},
                          AddedTokens::Order::kLeftmostLongest);
  EXPECT_EQ(fragments(added, "a \u00A0<l> b<r>  c"), (Words{"a", "[1: \u00A0<l>]", " b", "[2:<r>  ]", "c"}));
  EXPECT_EQ(fragments(added, "<r> <l>"), (Words{"[2:<r> ]", "[1:<l>]"}));
  EXPECT_EQ(fragments(added, "word swords word"), (Words{"[3:word]", " swords ", "[3:word]"}));
}

TEST(Unigram, FindsTheLikeliestTokens) {
  const nlohmann::json vocab = nlohmann::json::parse(
      R"([["<unk>", 0.0], ["a", -1.0], ["b", -1.0], ["ab", -1.5], ["bc", -0.2], ["c", -5.0], ["<0xC3>", -9.0]])");
  const nlohmann::json json = {{"model", {{"type", "Unigram"}, {"unk_id", 0}, {"vocab", vocab}}}};
  const Tokenizer t = tokenizer_of(json);
  EXPECT_EQ(t.encode("ab"), (TokenIds{3}));
  EXPECT_EQ(t.encode("abc"), (TokenIds{1, 4}));
  EXPECT_EQ(t.encode("aééa"), (TokenIds{1, 0, 1}));  // one unknown token for both
  EXPECT_EQ(t.unk(), 0);
}

// T5's file is of this kind.
TEST(Unigram, IsReadFromAnOldFileWithoutAType) {
  const auto model = nlohmann::json::parse(R"({"unk_id": 0, "vocab": [["<unk>", 0], ["a", -1], ["aa", -1.5]]})");
  auto typed = model;
  typed["type"] = "Unigram";
  const Tokenizer old = tokenizer_of({{"model", model}}), now = tokenizer_of({{"model", typed}});
  EXPECT_EQ(old.encode("aaaé"), (TokenIds{1, 2, 0}));
  EXPECT_EQ(old.encode("aaaé"), now.encode("aaaé"));
}

TEST(PostProcessor, PutsATemplateAroundTheText) {
  nlohmann::json json = byte_level_json({});
  json["post_processor"] = {
      {"type", "TemplateProcessing"},
      {"single", {{{"SpecialToken", {{"id", "b"}}}}, {{"Sequence", {{"id", "A"}}}}, {{"SpecialToken", {{"id", "e"}}}}}},
      {"special_tokens", {{"b", {{"ids", {257, 257}}}}, {"e", {{"ids", {256}}}}}}};
  const Tokenizer t = tokenizer_of(json);
  EXPECT_EQ(t.encode("a", {.add_special = true}), (TokenIds{257, 257, 'a', 256}));
  EXPECT_EQ(t.encode("a"), (TokenIds{'a'}));
  EXPECT_EQ(t.encode("", {.add_special = true}), (TokenIds{257, 257, 256}));
  EXPECT_TRUE(t.adds_bos());
  EXPECT_TRUE(t.adds_eos());
}

}  // namespace
}  // namespace quire
