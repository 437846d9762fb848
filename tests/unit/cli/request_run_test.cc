// Timed requests on an engine: each answer ends once, with the times of its tokens in order.
#include "cli/measure/request_run.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <random>

#include "base/error.h"
#include "model/synth.h"

namespace quire {
namespace {

// A synthetic model, written for each test.
class TimedModel {
 public:
  TimedModel()
      : path_(std::filesystem::temp_directory_path() / ("quire-timed-" + std::to_string(::getpid()) + ".gguf")) {
    write_synthetic_model(path_, {"timed", 2, 256, 4, 2, 64, 512, 320, 512, 10000, false}, TensorType::Q4_0, 5);
  }
  ~TimedModel() { std::filesystem::remove(path_); }

  EngineOptions options() const {
    EngineOptions options;
    options.model = path_.string();
    options.threads = 2;
    options.max_num_seqs = 16;
    return options;
  }

 private:
  const std::filesystem::path path_;
};

TokenIds random_prompt(unsigned seed, int count) {
  std::mt19937 random(seed);
  TokenIds ids;
  for (int i = 0; i < count; ++i) ids.push_back(static_cast<TokenId>(random() % 256));
  return ids;
}

std::vector<ScheduledRequest> schedule(int count, int prompt_tokens, int answer_tokens) {
  std::vector<ScheduledRequest> all;
  for (int i = 0; i < count; ++i) {
    Request r;
    r.prompt = random_prompt(static_cast<unsigned>(i), prompt_tokens);
    r.sampling.temperature = 0;
    r.sampling.ignore_eos = true;
    r.sampling.max_tokens = answer_tokens;
    all.push_back({std::move(r), 0});
  }
  return all;
}

void expect_times_in_order(const TimedAnswer& a) {
  EXPECT_LE(a.due, a.submitted);
  ASSERT_EQ(a.tokens.size(), a.token_times.size());
  EXPECT_TRUE(std::ranges::is_sorted(a.token_times));
  EXPECT_LE(a.submitted, a.token_times.front());
  EXPECT_LE(a.token_times.back(), a.ended);
}

// Answers that were submitted and had not ended at the same time.
int most_at_once(const TimedRun& run) {
  int most = 0;
  for (const TimedAnswer& a : run.answers) {
    most = std::max(most, static_cast<int>(std::ranges::count_if(run.answers, [&](const TimedAnswer& b) {
                      return b.submitted <= a.submitted && a.submitted < b.ended;
                    })));
  }
  return most;
}

TEST(RequestRun, ClosedLoopKeepsItsConcurrency) {
  const TimedModel model;
  Engine engine(model.options());
  const TimedRun run = run_requests(engine, schedule(9, 20, 12), {.concurrency = 3});
  ASSERT_EQ(run.answers.size(), 9u);
  for (const TimedAnswer& a : run.answers) {
    EXPECT_EQ(a.finish, FinishReason::kLength) << a.error;
    EXPECT_EQ(a.tokens.size(), 12u);
    expect_times_in_order(a);
    EXPECT_LE(a.ended, run.seconds);
  }
  EXPECT_EQ(most_at_once(run), 3);
}

TEST(RequestRun, OpenLoopSubmitsAtTheGivenTimes) {
  const TimedModel model;
  Engine engine(model.options());
  auto requests = schedule(4, 10, 4);
  for (size_t i = 0; i < requests.size(); ++i) requests[i].at = 0.05 * static_cast<double>(i);
  const TimedRun run = run_requests(engine, requests, {});
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(run.answers[i].due, requests[i].at);
    EXPECT_GE(run.answers[i].submitted, requests[i].at);
    expect_times_in_order(run.answers[i]);
  }
  EXPECT_GE(run.seconds, 0.15);
}

TEST(RequestRun, AnswersAreThoseOfTheEngine) {
  const TimedModel model;
  Engine engine(model.options());
  const auto requests = schedule(5, 30, 10);
  const TimedRun run = run_requests(engine, requests, {.concurrency = 5});
  for (size_t i = 0; i < requests.size(); ++i) {
    TokenIds alone;
    engine.generate(requests[i].request, [&](const Output& out) {
      for (const OutputToken& token : out.tokens) alone.push_back(token.id);
    });
    EXPECT_EQ(run.answers[i].tokens, alone) << i;
  }
}

TEST(RequestRun, CutsOffAtTheTimeLimit) {
  const TimedModel model;
  EngineOptions options = model.options();
  options.max_num_seqs = 2;
  Engine engine(options);
  const TimedRun run = run_requests(engine, schedule(4000, 64, 60), {.concurrency = 2, .longest = 0.2});
  EXPECT_LT(run.seconds, 20);
  const RunFigures figures = figures_of(run);
  EXPECT_EQ(figures.failed, 0);
  EXPECT_GT(figures.output_tokens, 0);
  EXPECT_LT(figures.completed, 4000);
  EXPECT_EQ(run.answers.back().finish, FinishReason::kNone);
  // Nothing is left behind to take part in the next run.
  EXPECT_EQ(figures_of(run_requests(engine, schedule(2, 10, 4), {.concurrency = 2})).completed, 2);
}

TEST(RequestRun, ThrowsForARequestThatCanNeverRun) {
  const TimedModel model;
  Engine engine(model.options());
  auto requests = schedule(3, 10, 50);
  requests[2].request.prompt.clear();
  EXPECT_THROW(run_requests(engine, requests, {.concurrency = 3}), Error);
  const auto again = run_requests(engine, schedule(1, 10, 4), {.concurrency = 1});  // nothing is left behind
  EXPECT_TRUE(again.answers[0].completed());
}

TimedAnswer timed_answer(double due, std::vector<double> times) {
  TimedAnswer a;
  a.due = a.submitted = due;
  a.tokens.assign(times.size(), 1);
  a.ended = times.back();
  a.token_times = std::move(times);
  a.finish = FinishReason::kLength;
  a.usage.prompt_tokens = 100;
  a.usage.cached_tokens = 64;
  return a;
}

TEST(RunFigures, CountLatenciesFromWhenAnAnswerWasDue) {
  TimedRun run{.answers = {timed_answer(0, {1, 1.5, 2}), timed_answer(1, {4, 4, 5})}, .seconds = 5};
  run.answers[1].submitted = 2;
  const RunFigures f = figures_of(run, {.ttft = 2, .tpot = 0.5, .e2e = {}});
  EXPECT_EQ(f.completed, 2);
  EXPECT_EQ(f.good, 1);  // the second waited for 3 s
  EXPECT_EQ(f.output_tokens, 6);
  EXPECT_EQ(f.prompt_tokens, 200);
  EXPECT_EQ(f.cached_tokens, 128);
  EXPECT_DOUBLE_EQ(f.output_rate(), 6 / 5.0);
  EXPECT_DOUBLE_EQ(f.request_rate(), 2 / 5.0);
  EXPECT_DOUBLE_EQ(f.ttft.p50, 1);
  EXPECT_DOUBLE_EQ(f.ttft.max, 3);
  EXPECT_DOUBLE_EQ(f.tpot.mean, 0.5);
  EXPECT_EQ(f.itl.samples, 4u);
  EXPECT_DOUBLE_EQ(f.itl.max, 1);
  EXPECT_DOUBLE_EQ(f.e2e.max, 4);
}

TEST(RunFigures, TellFailuresFromAnswersCutOff) {
  TimedRun run{.answers = {timed_answer(0, {1, 2}), timed_answer(0, {1, 2}), {}, {}}, .seconds = 3};
  run.answers[1].finish = FinishReason::kCancelled;  // its tokens count
  run.answers[3].finish = FinishReason::kError;
  const RunFigures f = figures_of(run);
  EXPECT_EQ(f.requests, 4);
  EXPECT_EQ(f.completed, 1);
  EXPECT_EQ(f.failed, 1);
  EXPECT_EQ(f.output_tokens, 4);
  EXPECT_EQ(f.tpot.samples, 1u);
}

}  // namespace
}  // namespace quire
