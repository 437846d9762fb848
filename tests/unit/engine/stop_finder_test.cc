// A request may bring its own finder of stop strings: the answer ends where it says, alone, with others and with drafts.
#include <gtest/gtest.h>

#include "unit/engine/tiny_engine.h"

namespace quire {
namespace {

using testing::Answer;
using testing::answer;
using testing::answers;
using testing::expect_same;
using testing::random_tokens;
using testing::tiny_options;
using Kind = ConstraintSource::Kind;

// Stops at a 7 after the first "]"; at the end of an answer without one.
class SevenFinder final : public StopFinder {
 public:
  std::optional<size_t> add(std::string_view text, bool counts) override {
    for (const char c : text) {
      answer_ |= c == ']';
      if (answer_ && c == '7' && counts) return 1;
    }
    return std::nullopt;
  }
  std::optional<size_t> end(bool complete) override {
    return complete || answer_ ? std::nullopt : std::optional<size_t>(0);
  }

 private:
  bool answer_ = false;
};

// The model's tokens are bytes: digits in brackets, which are no answer, then digits.
Request stopped_request(Engine& engine, unsigned seed, int n = 1) {
  Request r;
  r.prompt = random_tokens(seed, 20);
  r.sampling = {.temperature = 1.5f, .seed = seed, .max_tokens = 120, .n = n};
  r.sampling.stop = {"none", "7"};
  r.sampling.logprobs = 0;
  r.constraint = engine.compile({.kind = Kind::kRegex, .text = "\\[[0-9]{20}\\][0-9]{60}"});
  r.stop_finder = [] { return std::make_unique<SevenFinder>(); };
  return r;
}

void expect_stopped(const Answer& a) {
  const size_t after = a.text.find(']'), seven = a.text.find('7', after);
  ASSERT_NE(after, std::string::npos) << a.text;
  EXPECT_EQ(seven, seven == std::string::npos ? seven : a.text.size() - 1) << "all text is passed on, and no more";
  EXPECT_EQ(a.last.finish, FinishReason::kStop);
  EXPECT_EQ(a.last.stop_reason, seven == std::string::npos ? "" : "7");
}

TEST(StopFinders, EndAnswersWhereTheyFindAStopString) {
  Engine engine(tiny_options());
  for (unsigned seed = 0; seed < 8; ++seed) {
    for (const Answer& a : answers(engine, stopped_request(engine, seed, 3))) expect_stopped(a);
  }
}

TEST(StopFinders, ActWithinMinTokensOnlyAsTheyWish) {
  Engine engine(tiny_options());
  Request r = stopped_request(engine, 3);
  r.sampling.min_tokens = 82;
  EXPECT_EQ(answer(engine, r).text.size(), 82u);
}

TEST(StopFinders, AreAskedAtTheEndOfAnAnswerThatIsCutOff) {
  Engine engine(tiny_options());
  Request r = stopped_request(engine, 3);
  r.sampling.max_tokens = 10;
  const Answer a = answer(engine, r);
  EXPECT_EQ(a.last.finish, FinishReason::kStop);
  EXPECT_EQ(a.last.stop_reason, "none");
  EXPECT_EQ(a.text.size(), 10u);
}

TEST(StopFinders, GiveTheSameAnswersTogetherAndWithDrafts) {
  Engine plain(tiny_options());
  EngineOptions options = tiny_options();
  options.speculative = Speculation::kNgram;
  options.speculate_always = true;
  Engine speculating(options);
  std::vector<Request> requests;
  for (unsigned seed = 0; seed < 8; ++seed) requests.push_back(stopped_request(plain, seed, 2));
  const auto together = testing::answers_together(plain, requests);
  for (unsigned seed = 0; seed < 8; ++seed) {
    const auto alone = answers(plain, requests[seed]),
               drafted = answers(speculating, stopped_request(speculating, seed, 2));
    for (size_t choice = 0; choice < 2; ++choice) {
      expect_same(alone[choice], together[seed][choice]);
      expect_same(alone[choice], drafted[choice]);
      EXPECT_EQ(drafted[choice].last.stop_reason, alone[choice].last.stop_reason);
    }
  }
}

}  // namespace
}  // namespace quire
