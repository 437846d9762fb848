// Chunked prefill: what a long prompt does to the answers that are being generated.

#include <fmt/format.h>

#include <algorithm>

#include "cli/bench/limits.h"
#include "cli/figure/charts.h"
#include "cli/lab/engine_pair.h"
#include "cli/lab/experiment.h"
#include "cli/lab/stepped_run.h"

namespace quire {
namespace {

constexpr int kRunningAnswers = 4, kRunningPrompt = 16;
constexpr int kArrival = 12;  // tokens of the running answers when the long prompt arrives
constexpr int kRunningAnswer = 96;
constexpr int kArrivingAnswer = 4;
// A step takes at least 16 rows of a prompt, so this many tokens fit into the steps that the engine keeps.
constexpr int kLongestArriving = 16 * (static_cast<int>(kMostSteppedSteps) - kArrival - kArrivingAnswer - 8);

// What a run says about the long prompt and the answers next to it.
struct ChunkedRun {
  Samples longest, ttft, usual;  // seconds
  std::vector<double> gaps;      // between tokens of the running answers, in one of the runs
  double rows = 0, products = 0, chunks = 0;

  void add(const SteppedRun& run) {
    const uint64_t arriving = run.sequences.back(), running = run.sequences.front();
    gaps.clear();
    rows = products = chunks = 0;
    double longest_gap = 0, until_first = 0;
    Samples before;
    bool has_arrived = false, has_token = false;
    for (size_t i = 0; i < run.steps.size(); ++i) {
      const SteppedRun::Step& step = run.steps[i];
      const auto part = std::ranges::find(step.parts, arriving, &StepPart::sequence);
      has_arrived |= part != step.parts.end();
      if (has_arrived && !has_token) until_first += step.seconds;
      if (part != step.parts.end() && !part->decodes) {
        rows += part->rows;
        products += attention_products(part->first, part->rows);
        ++chunks;
        has_token |= part->tokens > 0;
      }
      const bool runs = std::ranges::find(step.parts, running, &StepPart::sequence) != step.parts.end();
      if (i == 0 || !runs) continue;
      gaps.push_back(step.seconds);
      if (has_arrived) longest_gap = std::max(longest_gap, step.seconds);
      if (!has_arrived) before.add(step.seconds);
    }
    longest.add(longest_gap);
    ttft.add(until_first);
    usual.add(before.median());
  }
};

ChartLine gap_line(const std::string& name, const ChunkedRun& run) {
  ChartLine line{.name = name};
  for (size_t i = 0; i < run.gaps.size(); ++i) line.points.push_back({static_cast<double>(i + 2), 1e3 * run.gaps[i]});
  return line;
}

LabResult run_chunked_prefill(const LabOptions& o, Progress& progress) {
  const int prompt = std::min({o.quick ? 1024 : 3072, kLongestArriving, context_of(o.engine) - kArrivingAnswer});
  const int answer = std::min(kRunningAnswer, context_of(o.engine) - kRunningPrompt);
  const int repetitions = o.quick ? 3 : 5;
  EngineOptions chunked = o.engine;
  chunked.max_num_seqs = kRunningAnswers + 1;
  chunked.max_model_len = std::max(prompt + kArrivingAnswer, kRunningPrompt + answer);
  chunked.prefix_cache = false;
  EngineOptions whole = chunked;
  whole.chunked_prefill = false;
  EnginePair engines(chunked, whole, progress);
  std::vector<SteppedRequest> requests;
  for (uint64_t i = 0; i < kRunningAnswers; ++i)
    requests.push_back({greedy_request(random_prompt(engines.on(), kRunningPrompt, i + 1), answer)});
  requests.push_back(
      {greedy_request(random_prompt(engines.on(), prompt, kRunningAnswers + 1), kArrivingAnswer), kArrival});
  const std::vector<SteppedRequest> alone{{requests.back().request}};
  ChunkedRun on, off;
  Samples alone_seconds;
  std::vector<TokenIds> answers_on, answers_off;
  engines.alternate(o, repetitions, progress, [&](Engine& engine, bool is_on) {
    SteppedRun run = run_stepped(engine, requests);
    (is_on ? on : off).add(run);
    (is_on ? answers_on : answers_off) = std::move(run.answers);
    if (!is_on) alone_seconds.add(run_stepped(engine, alone).steps.front().seconds);
  });
  const double usual = on.usual.median(), bound = std::max(chunked.tpot_target, 1.5 * usual);
  const auto ms = [](double seconds) { return 1e3 * seconds; };
  LabResult r;
  r.summary = fmt::format(
      "A prompt of {} tokens stops the running answers for {} ms if it is computed at once, and for at most {} ms at a "
      "time in chunks; its own first token comes after {} ms instead of {}.",
      lab_number_text(prompt), lab_number_text(ms(off.longest.median())), lab_number_text(ms(on.longest.median())),
      lab_number_text(ms(on.ttft.median())), lab_number_text(ms(off.ttft.median())));
  r.setup = {
      fmt::format("{} answers of {} tokens run; when they have {} tokens, a prompt of {} tokens arrives. {} "
                  "repetitions with and without chunks; the engine reports the time of each step, which is the gap "
                  "between two tokens of the running answers.",
                  kRunningAnswers, answer, kArrival, prompt, repetitions)};
  const std::string model = shell_word(o.engine.model);
  r.commands = {fmt::format("quire serve -m {} --tpot-target {}", model, chunked.tpot_target),
                fmt::format("quire serve -m {} --no-chunked-prefill", model),
                "quire bench serve --help    # sends requests to either, and prints the gaps between tokens (ITL)"};
  r.numbers = {
      {.what = "rows of the prompt in chunks",
       .unit = "rows",
       .value = on.rows,
       .claim = Claim::kEqual,
       .foretold = static_cast<double>(prompt),
       .theory = "chunks compute each token once"},
      {.what = "rows of the prompt at once",
       .unit = "rows",
       .value = off.rows,
       .claim = Claim::kEqual,
       .foretold = static_cast<double>(prompt),
       .theory = "all of it, in one step"},
      {.what = "products of a query and a key in chunks, in each head",
       .value = on.products,
       .claim = Claim::kEqual,
       .foretold = attention_products(0, prompt),
       .theory = "n (n + 1) / 2, however the prompt is cut"},
      {.what = "answers that differ",
       .value = answers_on == answers_off ? 0.0 : 1.0,
       .claim = Claim::kEqual,
       .foretold = 0,
       .theory = "a row's result does not depend on the chunk that it is in"},
      {.what = "chunks", .value = on.chunks, .counted = false},
      {.what = "gap between tokens before the prompt arrives", .unit = "ms", .value = ms(usual), .counted = false},
      {.what = "longest gap, prompt at once",
       .unit = "ms",
       .value = ms(off.longest.median()),
       .counted = false,
       .claim = Claim::kAbout,
       .foretold = ms(alone_seconds.median() + usual),
       .factor = 1.5,
       .theory = "the prompt alone on the engine, and a step"},
      {.what = "longest gap, in chunks",
       .unit = "ms",
       .value = ms(on.longest.median()),
       .counted = false,
       .claim = Claim::kAtMost,
       .foretold = ms(bound),
       .factor = 1.5,
       .theory =
           "--tpot-target, or 1.5 steps without a prompt if that is more; the scheduler foretells the time of a step"},
      {.what = "time to the prompt's first token, in chunks",
       .unit = "ms",
       .value = ms(on.ttft.median()),
       .counted = false,
       .claim = Claim::kAtLeast,
       .foretold = ms(off.ttft.median()),
       .factor = 1.1,
       .theory = "that at once: the running answers take their share of each step"},
      {.what = "time to its first token, at once", .unit = "ms", .value = ms(off.ttft.median()), .counted = false},
  };
  LineChart chart{.title = "Gaps between the tokens of a running answer",
                  .x_label = "token of the answer",
                  .y_label = "milliseconds",
                  .log_y = true,
                  .lines = {gap_line("prompt in chunks", on), gap_line("prompt at once", off)}};
  r.figures = {
      {.caption = "One of the runs: a long prompt arrives while answers are generated", .svg = line_chart_svg(chart)}};
  return r;
}

}  // namespace

constinit const Experiment kChunkedPrefillExperiment{
    .name = "chunked-prefill",
    .title = "Chunked prefill",
    .question = "How long do running answers stop when a long prompt arrives?",
    .technique =
        "A long prompt takes as long as many steps of decoding. Computed in one step, it stops every running "
        "answer for that time. In chunks that fit a time budget, each step also computes the next token of all "
        "running answers, and the prompt's own first token comes a little later.",
    .page = "learn/batching",
    .run = run_chunked_prefill};

}  // namespace quire
