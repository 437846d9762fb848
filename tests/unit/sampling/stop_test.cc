#include "sampling/stop.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

TEST(StopMatcher, PassesTextThroughWithoutStopStrings) {
  const auto stops = prepare_stops({});
  StopMatcher matcher(stops);
  EXPECT_EQ(matcher.push("hello"), (StopStep{"hello", {}}));
  EXPECT_EQ(matcher.finish(), (StopStep{"", {}}));
}

TEST(StopMatcher, HoldsBackPossibleBeginningsOfStopStrings) {
  const auto stops = prepare_stops({"</s>"});
  StopMatcher matcher(stops);
  EXPECT_EQ(matcher.push("a <"), (StopStep{"a ", {}}));
  EXPECT_EQ(matcher.push("/"), (StopStep{"", {}}));
  EXPECT_EQ(matcher.push("b>"), (StopStep{"</b>", {}}));
  EXPECT_EQ(matcher.push("<"), (StopStep{"", {}}));
  EXPECT_EQ(matcher.finish(), (StopStep{"<", {}}));
}

TEST(StopMatcher, CutsTheAnswerBeforeTheStopString) {
  const auto stops = prepare_stops({"\n\n", "END"});
  StopMatcher matcher(stops);
  EXPECT_EQ(matcher.push("fine E"), (StopStep{"fine ", {}}));
  EXPECT_EQ(matcher.push("ND and more"), (StopStep{"", 1}));
  EXPECT_EQ(matcher.push("END"), (StopStep{"", 1}));
  EXPECT_EQ(matcher.finish(), (StopStep{"", 1}));
}

TEST(StopMatcher, KeepsTheStopStringIfAsked) {
  const auto stops = prepare_stops({"END"});
  StopMatcher matcher(stops, true);
  EXPECT_EQ(matcher.push("fine E"), (StopStep{"fine E", {}}));
  EXPECT_EQ(matcher.push("ND and more"), (StopStep{"ND", 0}));
}

TEST(StopMatcher, EndsAtTheFirstMatchAndTakesTheLongestThere) {
  EXPECT_EQ(StopMatcher(prepare_stops({"bcde", "c", "abc"})).push("xabcde"), (StopStep{"x", 2}));
  EXPECT_EQ(StopMatcher(prepare_stops({"b", "b"})).push("ab"), (StopStep{"a", 0}));
}

TEST(StopMatcher, FindsAStopStringThatBeginsWithinAFailedOne) {
  const auto stops = prepare_stops({"aab"});
  StopMatcher matcher(stops);
  EXPECT_EQ(matcher.push("aa"), (StopStep{"", {}}));
  EXPECT_EQ(matcher.push("a"), (StopStep{"a", {}}));
  EXPECT_EQ(matcher.push("b"), (StopStep{"", 0}));
}

TEST(StopMatcher, HoldsBackAcrossEmptyPieces) {
  const auto stops = prepare_stops({"ab"});
  StopMatcher matcher(stops);
  EXPECT_EQ(matcher.push("a"), (StopStep{"", {}}));
  EXPECT_EQ(matcher.push(""), (StopStep{"", {}}));
  EXPECT_EQ(matcher.push("b"), (StopStep{"", 0}));
}

}  // namespace
}  // namespace quire
