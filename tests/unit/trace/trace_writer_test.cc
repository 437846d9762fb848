// The file of a trace: complete, bounded, readable at any moment, and never waited for.

#include "trace/trace_writer.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "error_of.h"
#include "trace/trace_summary.h"
#include "unit/trace/known_trace.h"
#include "unit/trace/temporary_trace.h"

namespace quire {
namespace {

using testing::kKnownOperations;
using testing::kMs;
using testing::TemporaryTrace;

TraceFileOptions small_file(const TemporaryTrace& trace) {
  return {.path = trace.path(), .most_operations = 16, .most_answers = 16};
}

void hand_over(TraceWriter& writer, uint64_t number) {
  StepTrace& to = writer.current();
  const StepTrace from =
      testing::step_at(number, static_cast<int64_t>(number) * 10, static_cast<int64_t>(number) * 10 + 8);
  to.number = from.number;
  to.span = from.span;
  to.phases = from.phases;
  to.decode_rows = to.sequences = 1;
  for (const TracedOperation& operation : from.operations) to.add(operation);
  writer.hand_over();
}

TEST(TraceWriter, WritesEveryStepInOrder) {
  const TemporaryTrace trace;
  {
    TraceWriter writer(small_file(trace), testing::known_header(), kKnownOperations);
    for (uint64_t i = 1; i <= 20; ++i) hand_over(writer, i);
  }
  const TraceSummary summary = summarize_trace(trace.path(), 3);
  EXPECT_EQ(summary.end, TraceEnd::kClosed);
  EXPECT_EQ(summary.steps, 20u);
  EXPECT_EQ(summary.losses, TraceLosses{});
  EXPECT_TRUE(nlohmann::json::parse(trace.text()).is_array());
}

TEST(TraceWriter, WritesWhatHappenedAfterTheLastStep) {
  const TemporaryTrace trace;
  {
    TraceWriter writer(small_file(trace), testing::known_header(), kKnownOperations);
    writer.current().add(
        TracedAnswer{.kind = TracedAnswer::Kind::kFinished, .span = {0, kMs}, .sequence = 4, .reason = "cancelled"});
  }
  EXPECT_EQ(summarize_trace(trace.path(), 0).answers.reasons, (std::map<std::string, size_t>{{"cancelled", 1}}));
}

// A killed process leaves what was written so far; nothing waits for the writer.
TEST(TraceWriter, LeavesAReadableFileWhileItRuns) {
  const TemporaryTrace trace;
  TraceWriter writer(small_file(trace), testing::known_header(), kKnownOperations);
  hand_over(writer, 1);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  TraceSummary summary = summarize_trace(trace.path(), 0);
  while (summary.steps == 0 && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    summary = summarize_trace(trace.path(), 0);
  }
  EXPECT_EQ(summary.steps, 1u);
  EXPECT_EQ(summary.end, TraceEnd::kMissing);
  EXPECT_FALSE(summary.cut_inside_event);
}

TEST(TraceWriter, EndsAtItsLimitAndSaysSo) {
  const TemporaryTrace trace;
  TraceFileOptions options = small_file(trace);
  options.most_bytes = kLeastTraceBytes;
  bool ended = false;
  {
    TraceWriter writer(options, testing::known_header(), kKnownOperations);
    for (uint64_t i = 1; i <= 100'000 && !ended; ++i) {
      hand_over(writer, i);
      if (i % 32 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));  // no step is lost on a slow machine
      ended = writer.ended();
    }
  }
  EXPECT_TRUE(ended);
  EXPECT_LE(std::filesystem::file_size(trace.path()), kLeastTraceBytes);
  EXPECT_GT(std::filesystem::file_size(trace.path()), kLeastTraceBytes * 9 / 10);
  const TraceSummary summary = summarize_trace(trace.path(), 0);
  EXPECT_EQ(summary.end, TraceEnd::kLimit);
  EXPECT_GT(summary.steps, 50u);
}

// The writer sleeps between two writes, so a burst finds the buffer full.
TEST(TraceWriter, CountsStepsForWhichItHasNoRoomAndKeepsTheirAnswers) {
  constexpr uint64_t kSteps = 20'000;
  const TemporaryTrace trace;
  TraceFileOptions options = small_file(trace);
  options.buffer_bytes = 1;  // the least: four steps
  {
    TraceWriter writer(options, testing::known_header(), kKnownOperations);
    for (uint64_t i = 1; i <= kSteps; ++i) {
      if (i == kSteps / 2)
        writer.current().add(
            TracedAnswer{.kind = TracedAnswer::Kind::kFinished, .span = {0, kMs}, .sequence = 5, .reason = "stop"});
      hand_over(writer, i);
    }
  }
  const TraceSummary summary = summarize_trace(trace.path(), 0);
  EXPECT_GT(summary.losses.steps, 0u);
  // The step in progress at the end is empty, unless it was a lost one.
  EXPECT_EQ(summary.steps + summary.losses.steps, kSteps);
  EXPECT_EQ(summary.answers.finished, 1u);
}

TEST(TraceWriter, ReplacesAnOlderTrace) {
  const TemporaryTrace trace(std::string(100'000, 'x'));
  { TraceWriter writer(small_file(trace), testing::known_header(), kKnownOperations); }
  EXPECT_EQ(summarize_trace(trace.path(), 0).end, TraceEnd::kClosed);
}

TEST(TraceWriter, RefusesPathsThatAreNoFiles) {
  const TemporaryTrace trace;
  const auto open = [](const std::string& path) {
    return error_of([&] { TraceWriter({.path = path}, testing::known_header(), kKnownOperations); });
  };
  EXPECT_EQ(open("/dev/null"),
            "cannot write the trace \"/dev/null\": it is not a regular file; name a new one with --trace-out");
  EXPECT_NE(open(trace.folder()).find("Is a directory"), std::string::npos);
  EXPECT_NE(open(trace.folder() + "/missing/trace.json").find("No such file or directory"), std::string::npos);
  const std::string pipe = trace.folder() + "/pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_NE(open(pipe), "") << "must not wait for a reader";
}

}  // namespace
}  // namespace quire
