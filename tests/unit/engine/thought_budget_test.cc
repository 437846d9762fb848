// Thoughts end where their budget is spent, and the answer follows.
#include <gtest/gtest.h>

#include <regex>

#include "base/error.h"
#include "engine/answer/thought_watch.h"
#include "unit/engine/tiny_engine.h"

namespace quire {
namespace {

using testing::Answer;
using testing::answer;
using testing::Answers;
using testing::expect_same;
using testing::random_tokens;
using testing::tiny_options;
using Kind = ConstraintSource::Kind;

constexpr TokenId kClose = 1, kAfter = 2;

ThoughtBudget budget(int tokens, bool inside) {
  return {.tokens = tokens, .inside = inside, .open = "<t>", .close = "\xff</t>\xfe", .closing = {kClose, kAfter}};
}

TEST(ThoughtWatch, ForcesTheClosingAfterTheBudget) {
  const ThoughtBudget b = budget(2, true);
  ThoughtWatch watch(b);
  watch.add("a");
  EXPECT_FALSE(watch.forced());
  watch.add("");  // half a character
  EXPECT_FALSE(watch.forced());
  watch.add("ä");
  EXPECT_EQ(watch.forced(), kClose);
  watch.add("\xfd</t>\xfe");  // a token that is shown is the same mark
  EXPECT_EQ(watch.forced(), kAfter);
  watch.add("\n");
  EXPECT_FALSE(watch.forced());
  for (int i = 0; i < 9; ++i) watch.add("answer");
  EXPECT_FALSE(watch.forced());
}

TEST(ThoughtWatch, SeesThoughtsThatBeginInTheAnswer) {
  const ThoughtBudget b = budget(1, false);
  ThoughtWatch watch(b);
  for (const char* text : {"a", "b", "<", "t"}) watch.add(text);
  EXPECT_FALSE(watch.forced());
  watch.add(">");
  EXPECT_FALSE(watch.forced());
  watch.add("x");
  EXPECT_EQ(watch.forced(), kClose);
}

TEST(ThoughtWatch, DoesNothingIfTheModelEndsInTime) {
  const ThoughtBudget b = budget(3, true);
  ThoughtWatch watch(b);
  for (const char* text : {"a", "b", "\xff</t>\xfe", "c", "d", "e", "f"}) {
    watch.add(text);
    EXPECT_FALSE(watch.forced()) << text;
  }
}

TEST(ThoughtWatch, ClosesAtOnceWithoutABudget) {
  const ThoughtBudget b = budget(0, true);
  EXPECT_EQ(ThoughtWatch(b).forced(), kClose);
}

TEST(ThoughtWatch, WaitsWhereAConstraintForbidsTheClosing) {
  const ThoughtBudget b = budget(1, true);
  ThoughtWatch watch(b);
  watch.add("a");
  watch.skip();
  watch.add("b");
  EXPECT_EQ(watch.forced(), kClose);
  watch.add("\xff</t>\xfe");
  watch.skip();  // what follows the mark is given up
  EXPECT_FALSE(watch.forced());
}

// The model's tokens are bytes. A thought of letters, then three digits.
Request thinking_request(Engine& engine, unsigned seed, std::optional<int> tokens) {
  Request r;
  r.prompt = random_tokens(seed, 20);
  r.sampling = {.temperature = 1.5f, .seed = seed, .max_tokens = 200};
  r.sampling.logprobs = 0;
  r.frame_tokens = true;
  r.constraint = engine.compile({.kind = Kind::kRegex, .text = "[a-z]{0,150}</t>[0-9]{3}"});
  if (tokens) {
    r.thought_budget = ThoughtBudget{
        .tokens = *tokens, .inside = true, .open = "<t>", .close = "</t>", .closing = {'<', '/', 't', '>'}};
  }
  return r;
}

TEST(ThoughtBudget, EndsThoughtsAndLetsTheAnswerCome) {
  Engine engine(tiny_options());
  size_t shortened = 0;
  const auto thought = [](const Answer& a) {
    return static_cast<size_t>(std::ranges::find(a.tokens, TokenId{'<'}) - a.tokens.begin());
  };
  for (unsigned seed = 0; seed < 10; ++seed) {
    const Answer free = answer(engine, thinking_request(engine, seed, {}));
    const Answer held = answer(engine, thinking_request(engine, seed, 5));
    EXPECT_TRUE(std::regex_match(held.text, std::regex("[a-z]*</t>[0-9]{3}"))) << held.text;
    EXPECT_EQ(held.last.finish, FinishReason::kStop);
    EXPECT_EQ(thought(held), std::min<size_t>(thought(free), 5));
    EXPECT_TRUE(std::equal(held.tokens.begin(), held.tokens.begin() + static_cast<ptrdiff_t>(thought(held)),
                           free.tokens.begin()));
    shortened += thought(free) > 5;
    for (const float logprob : held.logprobs) EXPECT_LE(logprob, 0);
  }
  EXPECT_GT(shortened, 0u);
}

TEST(ThoughtBudget, GivesTheSameAnswersInAnyCompany) {
  Engine engine(tiny_options());
  std::vector<Request> requests;
  Answers alone;
  for (unsigned seed = 0; seed < 12; ++seed) {
    requests.push_back(thinking_request(engine, seed, static_cast<int>(seed)));
    alone.push_back(answer(engine, requests.back()));
  }
  const auto together = testing::answers_together(engine, requests);
  for (size_t i = 0; i < alone.size(); ++i) expect_same(alone[i], together[i][0], std::to_string(i));
}

TEST(ThoughtBudget, NeedsMarksAndFrames) {
  Engine engine(tiny_options());
  Request r = thinking_request(engine, 1, 5);
  r.frame_tokens = false;
  EXPECT_THROW(answer(engine, r), Error);
  r = thinking_request(engine, 1, 5);
  r.thought_budget->closing = {};
  EXPECT_THROW(answer(engine, r), Error);
  r = thinking_request(engine, 1, 5);
  r.thought_budget->closing = {1 << 20};
  EXPECT_THROW(answer(engine, r), Error);
}

}  // namespace
}  // namespace quire
