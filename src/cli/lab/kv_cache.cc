// With and without a KV cache: rows, products of attention, and time by the length of the answer.

#include <fmt/format.h>

#include <algorithm>

#include "cli/bench/limits.h"
#include "cli/figure/charts.h"
#include "cli/lab/engine_pair.h"
#include "cli/lab/experiment.h"
#include "cli/lab/stepped_run.h"

namespace quire {
namespace {

constexpr int kCachedPrompt = 16;

// What an answer took, token by token.
struct TokenCosts {
  std::vector<Samples> seconds;  // of each step, one sample a repetition
  double rows = 0, products = 0;

  void add(const SteppedRun& run) {
    seconds.resize(run.steps.size());
    rows = products = 0;
    for (size_t i = 0; i < run.steps.size(); ++i) {
      seconds[i].add(run.steps[i].seconds);
      for (const StepPart& part : run.steps[i].parts) {
        rows += part.rows;
        products += attention_products(part.first, part.rows);
      }
    }
  }
  double median(size_t step) const { return seconds[step].median(); }
  double total(size_t begin, size_t end) const {
    double sum = 0;
    for (size_t i = begin; i < end; ++i) sum += median(i);
    return sum;
  }
};

ChartLine token_line(const std::string& name, const TokenCosts& costs) {
  ChartLine line{.name = name};
  for (size_t i = 0; i < costs.seconds.size(); ++i)
    line.points.push_back({static_cast<double>(i + 1), 1e3 * costs.median(i)});
  return line;
}

LabResult run_kv_cache(const LabOptions& o, Progress& progress) {
  const int answer = std::min(o.quick ? 96 : 224, context_of(o.engine) - kCachedPrompt);
  const int repetitions = 3;
  EngineOptions with = o.engine;
  with.max_num_seqs = 1;
  with.max_model_len = kCachedPrompt + answer;
  with.prefix_cache = false;
  EngineOptions without = with;
  without.kv_cache = false;
  EnginePair engines(with, without, progress);
  const std::vector<SteppedRequest> request{{greedy_request(random_prompt(engines.on(), kCachedPrompt, 1), answer)}};
  TokenCosts on, off;
  TokenIds answer_on, answer_off;
  engines.alternate(o, repetitions, progress, [&](Engine& engine, bool is_on) {
    SteppedRun run = run_stepped(engine, request);
    (is_on ? on : off).add(run);
    (is_on ? answer_on : answer_off) = std::move(run.answers[0]);
  });
  const auto n = static_cast<double>(answer), p = static_cast<double>(kCachedPrompt);
  const size_t steps = on.seconds.size(), quarter = std::max<size_t>(1, steps / 4);
  const auto growth = [&](const TokenCosts& costs) {
    return costs.total(steps - quarter, steps) / costs.total(1, 1 + quarter);  // the first step also has the prompt
  };
  // Rows of the steps in these quarters without a cache: step i recomputes p + i tokens.
  const auto rows_between = [&](size_t begin, size_t end) {
    const auto b = static_cast<double>(begin), e = static_cast<double>(end);
    return (e - b) * p + (e * (e - 1) - b * (b - 1)) / 2;
  };
  const double rows_growth = rows_between(steps - quarter, steps) / rows_between(1, 1 + quarter);
  const double time_on = on.total(0, steps), time_off = off.total(0, steps);
  LabResult r;
  r.summary = fmt::format("An answer of {} tokens takes {} as long without a cache, and computes {} as many rows.",
                          answer, times_text(time_off / time_on), times_text(off.rows / on.rows));
  r.setup = {
      fmt::format("A prompt of {} tokens and an answer of {}, alone on the engine, {} times with and without a "
                  "cache. The engine reports each step: its time, its rows and their positions.",
                  kCachedPrompt, answer, repetitions)};
  const std::string model = shell_word(o.engine.model);
  r.commands = {fmt::format("quire run -m {} -p \"Tell me a story.\" -n {}", model, answer),
                fmt::format("quire run -m {} -p \"Tell me a story.\" -n {} --no-kv-cache", model, answer)};
  r.numbers = {
      {.what = "rows computed with a cache",
       .unit = "rows",
       .value = on.rows,
       .claim = Claim::kEqual,
       .foretold = p + n - 1,
       .theory = "p + n - 1: each token once, but for the last"},
      {.what = "rows computed without a cache",
       .unit = "rows",
       .value = off.rows,
       .claim = Claim::kEqual,
       .foretold = n * p + n * (n - 1) / 2,
       .theory = "n p + n (n - 1) / 2: all tokens so far, for each new one"},
      {.what = "products of a query and a key with a cache, in each head",
       .value = on.products,
       .claim = Claim::kEqual,
       .foretold = attention_products(0, kCachedPrompt + answer - 1),
       .theory = "m (m + 1) / 2 with m = p + n - 1: the row at position i looks at i + 1 tokens"},
      {.what = "products without a cache",
       .value = off.products,
       .claim = Claim::kEqual,
       .foretold =
           [&] {
             double sum = 0;
             for (int i = 0; i < answer; ++i) sum += attention_products(0, kCachedPrompt + i);
             return sum;
           }(),
       .theory = "the sum of m (m + 1) / 2 for m = p to p + n - 1: about n^3 / 6"},
      {.what = "answers that differ",
       .value = answer_on == answer_off ? 0.0 : 1.0,
       .claim = Claim::kEqual,
       .foretold = 0,
       .theory = "a cached key is the key that would be computed again"},
      {.what = "time of the answer with a cache", .unit = "s", .value = time_on, .counted = false},
      {.what = "time without a cache", .unit = "s", .value = time_off, .counted = false},
      {.what = "last quarter of the answer compared with the first, with a cache",
       .unit = "times",
       .value = growth(on),
       .counted = false,
       .claim = Claim::kAbout,
       .foretold = 1,
       .factor = 1.3,
       .theory = "each step computes one row; only attention grows, and weights dominate"},
      {.what = "last quarter compared with the first, without a cache",
       .unit = "times",
       .value = growth(off),
       .counted = false,
       .claim = Claim::kAbout,
       .foretold = rows_growth,
       .factor = 2,
       .theory = "time is proportional to the rows, once they keep the multipliers busy"},
  };
  LineChart chart{.title = "Time of each token of an answer",
                  .x_label = "token of the answer",
                  .y_label = "milliseconds",
                  .lines = {token_line("with a KV cache", on), token_line("without", off)}};
  r.figures = {{.caption = "Without a cache each token recomputes all tokens before it", .svg = line_chart_svg(chart)}};
  return r;
}

}  // namespace

constinit const Experiment kKvCacheExperiment{
    .name = "kv-cache",
    .title = "The KV cache",
    .question = "What does it cost to generate without a KV cache?",
    .technique =
        "The keys and values of a token depend only on the tokens before it, so they can be kept once computed. "
        "With them in the cache, a new token is one row of work; without, the model computes all tokens so far "
        "again. An answer of n tokens then takes n rows instead of about n^2 / 2.",
    .page = "learn/kv-cache",
    .run = run_kv_cache};

}  // namespace quire
