#include "sampling/dry.h"

#include <gtest/gtest.h>

#include <array>

namespace quire {
namespace {

// Tokens are letters.
TokenIds letters(std::string_view text) { return {text.begin(), text.end()}; }

// Each character is a token, except that these are of several.
DryBreakers breakers(std::vector<std::string> texts) {
  static const std::array<char, 128> kLetters = [] {
    std::array<char, 128> all{};
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<char>(i);
    return all;
  }();
  return {prepare_stops(std::move(texts)), [](TokenId token) {
            if (token == 1) return std::string_view(".\n ");
            return std::string_view(&kLetters[static_cast<size_t>(token)], 1);
          }};
}

// What the next token's logits lose.
std::vector<float> penalties(std::string_view prompt, std::string_view answer, const SamplingParams& params,
                             const DryBreakers& no_run_over = breakers({})) {
  std::vector<float> logits(128, 0.0f);
  const TokenIds before = letters(prompt), generated = letters(answer);
  DryRun run(no_run_over);
  for (const TokenIds* part : {&before, &generated}) {
    for (const TokenId token : *part) run.push(token);
  }
  SamplerScratch scratch;
  apply_dry(params, {.logits = logits, .prompt = before, .generated = generated, .banned = {}, .dry_run = &run},
            scratch);
  for (float& x : logits) x = x == 0 ? 0 : -x;
  return logits;
}

std::vector<float> only(std::initializer_list<std::pair<char, float>> expected) {
  std::vector<float> all(128, 0.0f);
  for (const auto& [letter, penalty] : expected) all[static_cast<size_t>(letter)] = penalty;
  return all;
}

constexpr float kMultiplier = 0.5f, kBase = 2.0f;
const SamplingParams kDry{.dry_multiplier = kMultiplier, .dry_base = kBase};

TEST(Dry, PenalizesWhatContinuesARepetition) {
  EXPECT_EQ(penalties("", "abcxab", kDry), only({{'c', 0.5f}}));
  EXPECT_EQ(penalties("", "zabcxzab", kDry), only({{'c', 1.0f}}));
  EXPECT_EQ(penalties("zabc", "xzab", kDry), only({{'c', 1.0f}})) << "the prompt counts";
  EXPECT_EQ(penalties("", "bcxb", kDry), only({})) << "shorter than the allowed length";
  EXPECT_EQ(penalties("", "abcxab", {.dry_base = kBase}), only({})) << "off";
}

TEST(Dry, TakesTheLongestRepetitionOfEachToken) {
  EXPECT_EQ(penalties("", "zabcyabcxzabdxzab", kDry), only({{'c', 1.0f}, {'d', 2.0f}}));
  EXPECT_EQ(penalties("", "aaaaa", kDry), only({{'a', 2.0f}})) << "repetitions may overlap";
}

TEST(Dry, LooksAtTheLastTokensOnly) {
  SamplingParams params = kDry;
  params.dry_penalty_last_n = 6;
  EXPECT_EQ(penalties("abc", "xab", params), only({{'c', 0.5f}}));
  params.dry_penalty_last_n = 5;
  EXPECT_EQ(penalties("abc", "xab", params), only({}));
  params.dry_penalty_last_n = 0;
  EXPECT_EQ(penalties("abc", "xab", params), only({}));
}

TEST(Dry, DoesNotLookBeyondABreaker) {
  EXPECT_EQ(penalties("", "zabcyzab", kDry, breakers({"z"})), only({{'c', 0.5f}}));
  EXPECT_EQ(penalties("", "zabcyzab", kDry, breakers({"a"})), only({}));
  EXPECT_EQ(penalties("", "zabcyzab", kDry, breakers({"yz"})), only({{'c', 0.5f}})) << "over two tokens";
  EXPECT_EQ(penalties("", "zabcyzab", kDry, breakers({"za"})), only({}));
  EXPECT_EQ(penalties("", "zabcyzab", kDry, breakers({"b"})), only({}));
  EXPECT_EQ(penalties("", "zabcyzab", kDry, breakers({"nowhere"})), only({{'c', 1.0f}}));
  EXPECT_EQ(penalties("",
                      "q\x01"
                      "abcy\x01"
                      "ab",
                      kDry, breakers({"\n"})),
            only({{'c', 0.5f}}))
      << "within a token";
}

TEST(Dry, DoesNotPenalizeBreakers) {
  EXPECT_EQ(penalties("", "zabcyzab", kDry, breakers({"c"})), only({}));
  EXPECT_EQ(penalties("", "zabcyzab", kDry, breakers({"abc"})), only({})) << "c would complete it";
  EXPECT_EQ(penalties("", "zabcyzab", kDry, breakers({"xbc"})), only({{'c', 1.0f}}));
}

TEST(Dry, FindsBreakersThatOverlap) {
  const DryBreakers texts = breakers({"aba"});
  DryRun run(texts);
  std::vector<size_t> lengths;
  for (const char c : std::string_view("xababacaba")) {
    run.push(c);
    lengths.push_back(run.length());
  }
  EXPECT_EQ(lengths, (std::vector<size_t>{1, 2, 3, 0, 1, 0, 1, 2, 3, 0}));
}

TEST(Dry, NeverBans) {
  const SamplingParams most{.dry_multiplier = 100, .dry_base = 100, .dry_allowed_length = 1};
  const std::vector<float> lost = penalties("", std::string(5000, 'a'), most);
  EXPECT_EQ(lost['a'], 1e30f);
}

TEST(Dry, IsLinear) {
  // A quadratic search would take minutes.
  std::string text(1'000'000, 'a');
  EXPECT_EQ(penalties(text, "", {.dry_multiplier = 1, .dry_base = 1})['a'], 1.0f);
}

}  // namespace
}  // namespace quire
