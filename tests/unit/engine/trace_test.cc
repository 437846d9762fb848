// The engine's trace: every step and answer is in it, operations lie inside their steps, and answers do not change.

#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "engine/memory_plan.h"
#include "engine/trace/engine_trace.h"
#include "error_of.h"
#include "model/step_profile.h"
#include "trace/trace_reader.h"
#include "trace/trace_summary.h"
#include "unit/engine/tiny_engine.h"
#include "unit/trace/temporary_trace.h"

namespace quire {
namespace {

using testing::answer;
using testing::Answer;
using testing::answers;
using testing::random_tokens;
using testing::TemporaryTrace;

EngineOptions traced(const TemporaryTrace& trace) {
  EngineOptions o = testing::tiny_options();
  o.trace_out = trace.path();
  return o;
}

Request untimed_request(unsigned seed, int prompt, int tokens) {
  return {.prompt = random_tokens(seed, prompt),
          .sampling = {.temperature = 0, .max_tokens = tokens, .ignore_eos = true}};
}

std::vector<TraceEvent> events_of(const TemporaryTrace& trace) {
  TraceReader reader(trace.path());
  std::vector<TraceEvent> events;
  while (auto event = reader.next()) events.push_back(std::move(*event));
  EXPECT_EQ(reader.end(), TraceEnd::kClosed);
  EXPECT_EQ(reader.losses(), TraceLosses{});
  return events;
}

TEST(EngineTrace, HasEveryStepAndAnswer) {
  const TemporaryTrace trace;
  {
    Engine engine(traced(trace));
    for (unsigned i = 0; i < 3; ++i) {
      Request r = untimed_request(i, 20, 5);
      r.trace_label = "client \"" + std::to_string(i) + "\"";
      answer(engine, r);
    }
  }
  const TraceSummary s = summarize_trace(trace.path(), 3);
  EXPECT_EQ(s.steps, 15u) << "a prompt and four further tokens, three times";
  ASSERT_EQ(s.kinds.size(), 2u);
  EXPECT_EQ(s.kinds[0].kind, "prefill");
  EXPECT_EQ(s.kinds[0].prompt_rows, 60);
  EXPECT_EQ(s.kinds[0].tokens, 3);
  EXPECT_EQ(s.kinds[1].kind, "decode");
  EXPECT_EQ(s.kinds[1].times.count, 12u);
  EXPECT_EQ(s.kinds[1].tokens, 12);
  EXPECT_EQ(s.answers.finished, 3u);
  EXPECT_EQ(s.answers.unfinished, 0u);
  EXPECT_EQ(s.answers.reasons, (std::map<std::string, size_t>{{"length", 3}}));
  EXPECT_EQ(s.answers.prompt_tokens, 60);
  EXPECT_EQ(s.answers.tokens, 15);
  EXPECT_EQ(s.answers.ttft.count, 3u);
  EXPECT_LE(s.answers.ttft.most, s.answers.total.most);
  EXPECT_GT(s.answers.ttft.mean, s.answers.queue.mean);
  EXPECT_NE(trace.text().find("request 2 (client \\\"1\\\")"), std::string::npos);
}

TEST(EngineTrace, PutsOperationsIntoForwardPassesAndThoseIntoSteps) {
  const TemporaryTrace trace;
  {
    Engine engine(traced(trace));
    answer(engine, untimed_request(1, 40, 8));
  }
  constexpr double kRounding = 1e-9;
  const TraceEvent *step = nullptr, *forward = nullptr;
  std::vector<TraceEvent> events = events_of(trace);
  std::map<std::string, std::set<int64_t>> layers;  // of each operation
  const auto inside = [&](const TraceEvent& inner, const TraceEvent& outer) {
    return inner.began >= outer.began - kRounding &&
           inner.began + inner.seconds <= outer.began + outer.seconds + kRounding;
  };
  double last_operation = 0;
  for (const TraceEvent& event : events) {
    if (event.category == kStepCategory) step = &event;
    if (event.category == kPhaseCategory) {
      ASSERT_TRUE(step);
      EXPECT_TRUE(inside(event, *step)) << event.name;
      if (event.name == "forward") forward = &event;
    }
    if (event.category != kOperationCategory) continue;
    ASSERT_TRUE(forward);
    EXPECT_TRUE(inside(event, *forward)) << event.name;
    EXPECT_GE(event.began, last_operation - kRounding) << "one after the other";
    last_operation = event.began + event.seconds;
    layers[event.name].insert(event.arguments ? event.count("layer") : -1);
  }
  EXPECT_EQ(layers["attention"], (std::set<int64_t>{0, 1}));
  EXPECT_EQ(layers["down"], (std::set<int64_t>{0, 1}));
  EXPECT_EQ(layers["embed"], (std::set<int64_t>{-1}));
  EXPECT_EQ(layers["head"], (std::set<int64_t>{-1}));
}

TEST(EngineTrace, ChangesNoAnswer) {
  const TemporaryTrace trace;
  const Answer plain = [] {
    Engine engine(testing::tiny_options());
    return answer(engine, untimed_request(3, 50, 20));
  }();
  Engine engine(traced(trace));
  EXPECT_EQ(answer(engine, untimed_request(3, 50, 20)).tokens, plain.tokens);
}

TEST(EngineTrace, ShowsEachChunkOfAPrompt) {
  const TemporaryTrace trace;
  {
    EngineOptions o = traced(trace);
    o.max_num_batched_tokens = 16;
    Engine engine(o);
    answer(engine, untimed_request(1, 40, 2));
  }
  int64_t next = 0;
  for (const TraceEvent& event : events_of(trace)) {
    if (event.name != kPrefillName) continue;
    EXPECT_EQ(event.count("first"), next);
    next += event.count("rows");
    EXPECT_LE(event.count("rows"), 16);
  }
  EXPECT_EQ(next, 40);
}

TEST(EngineTrace, GivesChoicesThatForkATrackOfTheirOwn) {
  const TemporaryTrace trace;
  {
    Engine engine(traced(trace));
    Request r = untimed_request(1, 10, 4);
    r.sampling.n = 3;
    answers(engine, r);
  }
  std::set<uint64_t> tracks;
  int first_tokens = 0;
  for (const TraceEvent& event : events_of(trace)) {
    if (event.name == kFinishedName) tracks.insert(event.track);
    first_tokens += event.name == kFirstTokenName;
  }
  EXPECT_EQ(tracks.size(), 3u);
  EXPECT_EQ(first_tokens, 3);
  EXPECT_EQ(summarize_trace(trace.path(), 0).answers.prompt_tokens, 10) << "the choices share it";
}

TEST(EngineTrace, HasAnswersThatAreCancelledOrWaitInVain) {
  const TemporaryTrace trace;
  {
    EngineOptions o = traced(trace);
    o.max_num_seqs = 1;
    Engine engine(o);
    std::mutex mutex;
    std::condition_variable changed;
    int running = 0, ended = 0;
    const auto count = [&](const Output& out) {
      const std::lock_guard lock(mutex);
      running += !out.tokens.empty();
      ended += out.finish != FinishReason::kNone;
      changed.notify_one();
    };
    const RequestId runs = engine.submit(untimed_request(1, 10, 400), count);
    const RequestId waits = engine.submit(untimed_request(2, 10, 400), count);
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return running > 0; });
    engine.cancel(waits);
    changed.wait(lock, [&] { return ended > 0; });
    engine.cancel(runs);
    changed.wait(lock, [&] { return ended > 1; });
  }
  const AnswersSummary a = summarize_trace(trace.path(), 0).answers;
  EXPECT_EQ(a.reasons, (std::map<std::string, size_t>{{"cancelled", 2}}));
  EXPECT_EQ(a.ttft.count, 1u);
  EXPECT_EQ(a.unfinished, 0u);
}

TEST(EngineTrace, CountsDrafts) {
  const TemporaryTrace trace;
  Usage usage;
  {
    EngineOptions o = traced(trace);
    o.speculative = Speculation::kNgram;
    o.speculate_always = true;
    Engine engine(o);
    Request r = untimed_request(1, 8, 40);
    const TokenIds pattern = r.prompt;
    for (int i = 0; i < 4; ++i) r.prompt.insert(r.prompt.end(), pattern.begin(), pattern.end());
    usage = answer(engine, r).last.usage;
  }
  ASSERT_GT(usage.drafted_tokens, 0);
  const TraceSummary s = summarize_trace(trace.path(), 0);
  EXPECT_EQ(s.answers.drafted, usage.drafted_tokens);
  EXPECT_EQ(s.answers.accepted, usage.accepted_tokens);
  const bool drafts = std::ranges::any_of(s.phases, [](const NamedTally& phase) { return phase.name == "draft"; });
  EXPECT_TRUE(drafts);
}

TEST(EngineTrace, OfStepsAloneHasNoOperations) {
  const TemporaryTrace trace;
  {
    EngineOptions o = traced(trace);
    o.trace_detail = TraceDetail::kSteps;
    Engine engine(o);
    answer(engine, untimed_request(1, 10, 4));
  }
  const TraceSummary s = summarize_trace(trace.path(), 1);
  EXPECT_TRUE(s.operations.empty());
  EXPECT_FALSE(s.header.operations);
  EXPECT_EQ(s.steps, 4u);
}

// The operations are in the other process.
TEST(EngineTrace, OfAnExecutorProcessHasSteps) {
  const TemporaryTrace trace;
  {
    EngineOptions o = traced(trace);
    o.executor_process = true;
    Engine engine(o);
    answer(engine, untimed_request(1, 10, 4));
  }
  EXPECT_EQ(summarize_trace(trace.path(), 0).steps, 4u);
}

TEST(EngineTrace, EndsAtItsLimitWhileTheEngineGoesOn) {
  const TemporaryTrace trace;
  {
    EngineOptions o = traced(trace);
    o.trace_bytes = kLeastTraceBytes;
    Engine engine(o);
    EXPECT_EQ(answer(engine, untimed_request(1, 10, 480)).tokens.size(), 480u);
  }
  const TraceSummary s = summarize_trace(trace.path(), 0);
  EXPECT_EQ(s.end, TraceEnd::kLimit);
  EXPECT_GT(s.steps, 5u);
  EXPECT_LT(s.steps, 480u);
}

TEST(EngineTrace, RefusesAFileThatCannotBeWritten) {
  EngineOptions o = testing::tiny_options();
  o.trace_out = "/nonexistent/trace.json";
  EXPECT_EQ(error_of([&] { Engine engine(o); }),
            "cannot write the trace \"/nonexistent/trace.json\": No such file or directory");
}

TEST(StepProfile, KeepsSpansAsFarAsThereIsRoom) {
  StepProfile profile;
  std::vector<StepProfile::Span> spans;
  spans.reserve(2);
  const size_t room = spans.capacity();
  profile.keep_spans(&spans);
  profile.start();
  profile.set_layer(4);
  for (size_t i = 0; i < room + 3; ++i) profile.mark(StepOp::kDown);
  ASSERT_EQ(spans.size(), room);
  EXPECT_EQ(spans[0].layer, 4);
  EXPECT_EQ(spans[0].op, StepOp::kDown);
  EXPECT_EQ(spans[1].began, spans[0].ended);
  EXPECT_EQ(profile.take_lost_spans(), 3u);
  EXPECT_EQ(profile.take_lost_spans(), 0u);
  EXPECT_EQ(profile.calls[static_cast<size_t>(StepOp::kDown)], static_cast<int64_t>(room) + 3);
}

}  // namespace
}  // namespace quire
