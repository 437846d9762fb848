#include "sampling/stop.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

TEST(StopMatcher, PassesTextOnWithoutStopStrings) {
  StopMatcher matcher({});
  EXPECT_EQ(matcher.push("hello"), (StopStep{"hello", {}}));
  EXPECT_EQ(matcher.finish(), (StopStep{"", {}}));
}

TEST(StopMatcher, HoldsBackWhatMayBecomeAStopString) {
  StopMatcher matcher({"</s>"});
  EXPECT_EQ(matcher.push("a <"), (StopStep{"a ", {}}));
  EXPECT_EQ(matcher.push("/"), (StopStep{"", {}}));
  EXPECT_EQ(matcher.push("b>"), (StopStep{"</b>", {}}));
  EXPECT_EQ(matcher.push("<"), (StopStep{"", {}}));
  EXPECT_EQ(matcher.finish(), (StopStep{"<", {}}));
}

TEST(StopMatcher, CutsTheAnswerBeforeTheStopString) {
  StopMatcher matcher({"\n\n", "END"});
  EXPECT_EQ(matcher.push("fine E"), (StopStep{"fine ", {}}));
  EXPECT_EQ(matcher.push("ND and more"), (StopStep{"", 1}));
  EXPECT_EQ(matcher.push("END"), (StopStep{"", 1}));
  EXPECT_EQ(matcher.finish(), (StopStep{"", 1}));
}

TEST(StopMatcher, KeepsTheStopStringIfTold) {
  StopMatcher matcher({"END"}, true);
  EXPECT_EQ(matcher.push("fine E"), (StopStep{"fine E", {}}));
  EXPECT_EQ(matcher.push("ND and more"), (StopStep{"ND", 0}));
}

TEST(StopMatcher, EndsAtTheFirstCompleteOneAndTakesTheLongestThere) {
  EXPECT_EQ(StopMatcher({"bcde", "c", "abc"}).push("xabcde"), (StopStep{"x", 2}));
  EXPECT_EQ(StopMatcher({"b", "b"}).push("ab"), (StopStep{"a", 0}));
}

TEST(StopMatcher, FindsAStopStringThatBeginsWithinAFailedOne) {
  StopMatcher matcher({"aab"});
  EXPECT_EQ(matcher.push("aa"), (StopStep{"", {}}));
  EXPECT_EQ(matcher.push("a"), (StopStep{"a", {}}));
  EXPECT_EQ(matcher.push("b"), (StopStep{"", 0}));
}

TEST(StopMatcher, KeepsHoldingWhenNothingCame) {
  StopMatcher matcher({"ab"});
  EXPECT_EQ(matcher.push("a"), (StopStep{"", {}}));
  EXPECT_EQ(matcher.push(""), (StopStep{"", {}}));
  EXPECT_EQ(matcher.push("b"), (StopStep{"", 0}));
}

}  // namespace
}  // namespace quire
