// What the report of a trace says: of one with known numbers, of one cut off anywhere, and of files that are none.

#include "trace/trace_summary.h"

#include <gtest/gtest.h>

#include "error_of.h"
#include "unit/trace/known_trace.h"
#include "unit/trace/temporary_trace.h"

namespace quire {
namespace {

using testing::known_trace;
using testing::TemporaryTrace;

constexpr double kNear = 1e-6;  // seconds; times are kept as float

TraceSummary summary_of(const std::string& text, size_t slowest = 5) {
  const TemporaryTrace trace(text);
  return summarize_trace(trace.path(), slowest);
}

std::string refusal_of(const std::string& text) {
  const TemporaryTrace trace;
  trace.write(text);
  return error_of(trace.path(), [&] { summarize_trace(trace.path(), 1); });
}

TEST(Tally, TakesPercentilesByNearestRank) {
  std::vector<float> times;
  for (int i = 100; i >= 1; --i) times.push_back(static_cast<float>(i));
  const TimeTally t = tally(times);
  EXPECT_EQ(t.count, 100u);
  EXPECT_EQ(t.total, 5050);
  EXPECT_EQ(t.mean, 50.5);
  EXPECT_EQ(t.p50, 50);
  EXPECT_EQ(t.p99, 99);
  EXPECT_EQ(t.most, 100);
  EXPECT_EQ(tally({3}).p99, 3);
  EXPECT_EQ(tally({}).count, 0u);
}

TEST(TraceSummary, AddsUpWhereTheTimeWent) {
  const TraceSummary s = summary_of(known_trace());
  EXPECT_EQ(s.header.model, "tiny");
  EXPECT_EQ(s.end, TraceEnd::kClosed);
  EXPECT_EQ(s.steps, 3u);
  EXPECT_NEAR(s.seconds, 0.062, kNear) << "from 10 to 72 ms";
  EXPECT_NEAR(s.step_seconds, 0.040, kNear);
  EXPECT_NEAR(s.gap_seconds, 0.002, kNear) << "between steps 1 and 2 there was work";
  EXPECT_NEAR(s.wait_seconds, 0.003, kNear);
  EXPECT_NEAR(s.idle_seconds, 0.017, kNear) << "from 32 to 52 ms, without the wait";
  EXPECT_NEAR(s.step_seconds + s.gap_seconds + s.wait_seconds + s.idle_seconds, s.seconds, kNear);
}

TEST(TraceSummary, SumsPhasesAndOperations) {
  const TraceSummary s = summary_of(known_trace());
  ASSERT_EQ(s.phases.size(), 2u);
  EXPECT_EQ(s.phases[0].name, "schedule");
  EXPECT_NEAR(s.phases[0].times.total, 0.003, kNear);
  EXPECT_EQ(s.phases[1].name, "forward");
  EXPECT_NEAR(s.phases[1].times.total, 0.037, kNear);
  ASSERT_EQ(s.operations.size(), 2u);
  EXPECT_EQ(s.operations[0].name, "down") << "the longest first";
  EXPECT_NEAR(s.operations[0].times.total, 0.020, kNear);
  EXPECT_EQ(s.operations[0].times.count, 3u);
  EXPECT_NEAR(s.operations[0].times.p99, 0.010, kNear);
  EXPECT_NEAR(s.operations[1].times.total, 0.017, kNear);
}

TEST(TraceSummary, SplitsStepsByKind) {
  const TraceSummary s = summary_of(known_trace());
  ASSERT_EQ(s.kinds.size(), 3u);
  EXPECT_EQ(s.kinds[0].kind, "prefill");
  EXPECT_EQ(s.kinds[0].prompt_rows, 8);
  EXPECT_EQ(s.kinds[1].kind, "mixed");
  EXPECT_EQ(s.kinds[1].prompt_rows, 4);
  EXPECT_EQ(s.kinds[1].decode_rows, 1);
  EXPECT_EQ(s.kinds[2].kind, "decode");
  EXPECT_EQ(s.kinds[2].drafts, 3);
  EXPECT_EQ(s.kinds[2].tokens, 1);
  EXPECT_NEAR(s.kinds[2].times.total, 0.020, kNear);
}

TEST(TraceSummary, TimesAnswers) {
  const AnswersSummary a = summary_of(known_trace()).answers;
  EXPECT_EQ(a.finished, 2u);
  EXPECT_EQ(a.unfinished, 1u) << "answer 2";
  EXPECT_EQ(a.preemptions, 1u);
  EXPECT_EQ(a.reasons, (std::map<std::string, size_t>{{"cancelled", 1}, {"stop", 1}}));
  EXPECT_EQ(a.prompt_tokens, 15);
  EXPECT_EQ(a.cached_tokens, 2);
  EXPECT_EQ(a.tokens, 3);
  EXPECT_EQ(a.drafted, 3);
  EXPECT_EQ(a.accepted, 1);
  EXPECT_EQ(a.queue.count, 2u);
  EXPECT_NEAR(a.queue.p50, 0.006, kNear);
  EXPECT_NEAR(a.queue.most, 0.010, kNear) << "cancelled after 10 ms in the queue";
  ASSERT_EQ(a.ttft.count, 1u);
  EXPECT_NEAR(a.ttft.mean, 0.016, kNear);
  ASSERT_EQ(a.tpot.count, 1u);
  EXPECT_NEAR(a.tpot.mean, 0.026, kNear) << "52 ms for two more tokens";
  EXPECT_NEAR(a.total.most, 0.068, kNear);
}

TEST(TraceSummary, ShowsTheSlowestStepsWithWhatWasInThem) {
  const std::vector<SlowStep> slowest = summary_of(known_trace(), 2).slowest;
  ASSERT_EQ(slowest.size(), 2u);
  EXPECT_EQ(slowest[0].number, 3u);
  EXPECT_EQ(slowest[0].kind, "decode");
  EXPECT_NEAR(slowest[0].began, 0.052, kNear);
  EXPECT_NEAR(slowest[0].seconds, 0.020, kNear);
  // The operations stand for the phase that they are in.
  std::vector<std::string> parts;
  for (const auto& part : slowest[0].parts) parts.push_back(part.first);
  EXPECT_EQ(parts, (std::vector<std::string>{"down", "attention", "schedule"}));
  EXPECT_EQ(slowest[1].number, 1u) << "of equally long ones, the first";
  EXPECT_TRUE(summary_of(known_trace(), 0).slowest.empty());
}

TEST(TraceSummary, ReadsATraceThatIsCutOffAnywhere) {
  const std::string whole = known_trace();
  const size_t header_end = whole.find('\n', 2) + 1;
  size_t steps = 0;
  const TemporaryTrace trace;
  for (size_t size = header_end; size < whole.size(); size += size + 400 < whole.size() ? 7 : 1) {
    trace.write(whole.substr(0, size));
    const TraceSummary s = summarize_trace(trace.path(), 1);
    EXPECT_GE(s.steps, steps) << size;
    steps = s.steps;
    // Without the last bracket it is complete: the last event was read.
    if (size < whole.size() - 3) EXPECT_EQ(s.end, TraceEnd::kMissing) << size;
  }
  EXPECT_EQ(steps, 3u);
  EXPECT_TRUE(summary_of(whole.substr(0, whole.size() - 20)).cut_inside_event);
}

TEST(TraceSummary, ReadsATraceWithoutSteps) {
  std::string text;
  append_trace_header(testing::known_header(), text);
  append_trace_end(TraceEnd::kLimit, 0, {.steps = 3, .operations = 2, .answers = 1}, text);
  const TraceSummary s = summary_of(text);
  EXPECT_EQ(s.steps, 0u);
  EXPECT_EQ(s.seconds, 0);
  EXPECT_EQ(s.end, TraceEnd::kLimit);
  EXPECT_EQ(s.losses, (TraceLosses{.steps = 3, .operations = 2, .answers = 1}));
}

TEST(TraceSummary, SaysWhatIsWrongWithAFile) {
  const std::string why = "; write one with `quire serve --trace-out FILE`";
  EXPECT_EQ(refusal_of(""), "\"FILE\" is empty: it is no trace, or nothing was written to it");
  EXPECT_EQ(refusal_of("hello\n"),
            "\"FILE\" is not a trace of Quire: it does not begin with a JSON array of events" + why);
  EXPECT_EQ(refusal_of("{\"traceEvents\": []}\n"),
            "\"FILE\" is not a trace of Quire: it does not begin with a JSON array of events" + why);
  EXPECT_EQ(refusal_of("[\n"), "\"FILE\" is not a trace of Quire: it has no events" + why);
  EXPECT_EQ(refusal_of("[\n{\"name\":\"qui"),
            "\"FILE\" is not a trace of Quire: its first event is cut off, or no JSON" + why);
  for (const char* other :
       {"{\"name\":\"main\",\"ph\":\"B\",\"pid\":1,\"tid\":1,\"ts\":0}", "{}", "7", "{\"name\":null}"})
    EXPECT_EQ(refusal_of(std::string("[\n") + other + "\n]\n"),
              "\"FILE\" is not a trace of Quire: its first event is another program's" + why);
  std::string newer = known_trace();
  newer.replace(newer.find("\"version\":1"), 11, "\"version\":9");
  EXPECT_NE(refusal_of(newer).find("a trace of version 9, but this Quire reads version 1"), std::string::npos);
  EXPECT_NE(error_of([] { summarize_trace("/nonexistent/trace", 1); }), "");
}

// Everything but the end must be whole.
TEST(TraceSummary, NamesTheLineOfADamagedEvent) {
  const std::string whole = known_trace();
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = whole;
    text.replace(text.find(from), from.size(), to);
    return refusal_of(text);
  };
  EXPECT_NE(with("{\"name\":\"step\"", "{\"name\":\"step").find("FILE:6"), std::string::npos)
      << with("{\"name\":\"step\"", "{\"name\":\"step");
  EXPECT_NE(with("\"dur\":10000.000", "\"dur\":\"long\"").find("dur: expected a number"), std::string::npos);
  EXPECT_NE(with("\"dur\":10000.000", "\"dur\":-1"), "");
  EXPECT_NE(with("\"prompt_rows\":8", "\"prompt_rows\":-8"), "");
  EXPECT_NE(with("\"prompt_rows\":8", "\"prompt_rows\":1e300"), "");
  EXPECT_NE(with("\"prompt_rows\":8,", "").find("prompt_rows is missing"), std::string::npos);
  EXPECT_NE(with("\"step\":2", "\"step\":1").find("step 1 comes after step 1"), std::string::npos);
  EXPECT_NE(with("\"kind\":\"mixed\"", "\"kind\":\"odd\"").find("not \"odd\""), std::string::npos);
  EXPECT_NE(with("\"name\":\"down\"", "\"name\":\"\\u001b[2J\"").find("name: must be printable ASCII"),
            std::string::npos);
  EXPECT_NE(with("\"reason\":\"stop\"", "\"reason\":\"\\u0007\"").find("reason: must be printable ASCII"),
            std::string::npos);
  EXPECT_NE(with("\"kernels\":\"avx2\"", "\"kernels\":\"\\u009b\""), "");
  EXPECT_NE(refusal_of(whole + "{}\n").find("the file goes on"), std::string::npos);
  EXPECT_NE(with("\n]\n", ",\n{\"name\":\"x\",\"cat\":\"op\",\"ph\":\"i\",\"pid\":1,\"tid\":1,\"ts\":0}\n]\n")
                .find("follows the end of the trace"),
            std::string::npos);
}

}  // namespace
}  // namespace quire
