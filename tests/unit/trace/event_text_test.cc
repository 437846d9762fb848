// Traces as text: that they are JSON, whatever the names in them, and what viewers find in them.

#include "trace/event_text.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "unit/trace/known_trace.h"

namespace quire {
namespace {

using nlohmann::json;
using testing::kKnownOperations;
using testing::kMs;

json events_of(const std::string& text) { return json::parse(text); }

json only(const json& events, const std::string& name) {
  std::vector<json> found;
  for (const json& event : events) {
    if (event["name"] == name) found.push_back(event);
  }
  EXPECT_EQ(found.size(), 1u) << name;
  return found.empty() ? json() : found.front();
}

TEST(EventText, IsAJsonArrayWithOneEventPerLine) {
  const std::string text = testing::known_trace();
  const json events = events_of(text);
  ASSERT_TRUE(events.is_array());
  // The brackets have lines of their own.
  EXPECT_EQ(std::ranges::count(text, '\n'), static_cast<std::ptrdiff_t>(events.size()) + 2);
  for (const json& event : events) {
    for (const char* key : {"name", "ph", "pid", "tid"}) EXPECT_TRUE(event.contains(key)) << event;
    if (event["ph"] == "X") EXPECT_TRUE(event["ts"].is_number() && event["dur"].is_number()) << event;
    if (event["ph"] == "i") EXPECT_EQ(event["s"], "t") << event;
  }
  EXPECT_EQ(events.front()["name"], kTraceHeaderName);
  EXPECT_EQ(events.back()["name"], kTraceEndName);
}

TEST(EventText, PutsPhasesAndOperationsInsideTheirStep) {
  std::string text;
  append_trace_header(testing::known_header(), text);
  append_step_events(testing::step_at(7, 10, 20), kKnownOperations, text);
  append_trace_end(TraceEnd::kClosed, 1, {}, text);
  const json events = events_of(text);
  const json step = only(events, "step");
  EXPECT_EQ(step["ts"], 10'000.0) << "microseconds";
  EXPECT_EQ(step["dur"], 10'000.0);
  EXPECT_EQ(step["args"]["step"], 7);
  for (const char* name : {"schedule", "forward", "attention", "down"}) {
    const json inner = only(events, name);
    EXPECT_GE(inner["ts"], step["ts"]) << name;
    EXPECT_LE(inner["ts"].get<double>() + inner["dur"].get<double>(), 20'000.0) << name;
    EXPECT_EQ(inner["pid"], step["pid"]) << name;
    EXPECT_EQ(inner["tid"], step["tid"]) << name;
  }
  EXPECT_EQ(only(events, "attention")["args"]["layer"], 0);
}

TEST(EventText, WritesTimesToTheNanosecond) {
  StepTrace step = testing::step_at(1, 0, 1);
  step.span = {1'234'567'890'123'004, 1'234'567'890'123'009};
  std::string text;
  append_step_events(step, kKnownOperations, text);
  EXPECT_NE(text.find("\"ts\":1234567890123.004,\"dur\":0.005"), text.npos) << text;
}

TEST(EventText, NamesStepsByTheirRows) {
  EXPECT_EQ(step_kind(8, 0), "prefill");
  EXPECT_EQ(step_kind(8, 2), "mixed");
  EXPECT_EQ(step_kind(0, 2), "decode");
}

// Clients choose the names of requests, and operators those of models.
TEST(EventText, StaysJsonWhateverNamesContain) {
  const std::string hostile[] = {"\"}],\n{\"name\":\"step\"",
                                 "\\",
                                 "\\\"",
                                 "a\nb\r\t",
                                 std::string("nul\0byte", 8),
                                 "\x1b[31m",
                                 "\xff\xfe",
                                 "\xed\xa0\x80",
                                 "\xc3",
                                 "</script>",
                                 "日本語 😀",
                                 std::string(1000, '"')};
  for (const std::string& name : hostile) {
    TraceHeader header = testing::known_header();
    header.model = name;
    StepTrace step;
    step.reserve(1, 4);
    step.add(TracedAnswer{.kind = TracedAnswer::Kind::kQueued, .span = {0, kMs}, .sequence = 9, .request = 9}, name);
    std::string text;
    append_trace_header(header, text);
    append_step_events(step, kKnownOperations, text);
    append_trace_end(TraceEnd::kClosed, 0, {}, text);
    const json events = json::parse(text, nullptr, false);
    ASSERT_FALSE(events.is_discarded()) << text;
    EXPECT_EQ(events.size(), 7u) << "no event more, no event less: " << text;
    EXPECT_EQ(only(events, "queued")["tid"], 9);
  }
}

TEST(EventText, GivesEachAnswerATrackWithItsName) {
  const json events = events_of(testing::known_trace());
  std::vector<std::string> names;
  for (const json& event : events) {
    if (event["name"] == "thread_name" && event["pid"] == kAnswersProcess) names.push_back(event["args"]["name"]);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"request 1 (request-a)", "request 2", "request 3"}));
}

TEST(EventText, ShowsAnAnswerThatNeverRanAsQueued) {
  const json events = events_of(testing::known_trace());
  bool queued = false;
  for (const json& event : events) {
    if (event["name"] != "queued" || event["tid"] != 3) continue;
    queued = true;
    EXPECT_EQ(event["ts"], 60'000.0);
    EXPECT_EQ(event["dur"], 10'000.0);
  }
  EXPECT_TRUE(queued);
}

TEST(StepTrace, KeepsWhatFitsAndCountsTheRest) {
  StepTrace step;
  step.reserve(2, 3);
  for (int i = 0; i < 5; ++i) step.add(TracedOperation{.layer = static_cast<int16_t>(i)});
  EXPECT_EQ(step.operations.size(), 2u);
  EXPECT_EQ(step.lost_operations, 3u);
  const std::string label(200, 'x');
  for (int i = 0; i < 4; ++i) step.add(TracedAnswer{.sequence = static_cast<uint64_t>(i)}, label);
  EXPECT_EQ(step.answers.size(), 3u);
  EXPECT_EQ(step.lost_answers, 1u);
  EXPECT_EQ(step.label(step.answers[1]), label.substr(0, StepTrace::kLongestLabel));
  step.clear_step();
  EXPECT_TRUE(step.operations.empty());
  EXPECT_EQ(step.answers.size(), 3u) << "answers stay until they are written";
}

TEST(StepTrace, GivesLongLabelsOnlyTheRoomThereIs) {
  StepTrace step;
  const size_t answers = StepTrace::kLabelBytes / StepTrace::kLongestLabel + 2;
  step.reserve(0, answers);
  const size_t room = step.labels.capacity();
  for (size_t i = 0; i < answers; ++i) step.add(TracedAnswer{}, std::string(StepTrace::kLongestLabel, 'y'));
  EXPECT_EQ(step.labels.capacity(), room) << "no allocation";
  EXPECT_LT(step.label(step.answers.back()).size(), StepTrace::kLongestLabel);
}

}  // namespace
}  // namespace quire
