// The prefix cache: time to the first token of prompts that begin alike.

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "cli/bench/limits.h"
#include "cli/figure/charts.h"
#include "cli/lab/engine_pair.h"
#include "cli/lab/experiment.h"
#include "cli/lab/stepped_run.h"
#include "kernels/types.h"

namespace quire {
namespace {

constexpr int kQuestionTokens = 20, kPrefixRequests = 5, kQuestionAnswer = 2;

// Of the request at each place.
struct PlaceCosts {
  std::array<Samples, kPrefixRequests> ttft;
  std::array<int, kPrefixRequests> cached{};
  std::vector<TokenIds> answers;

  double later() const {
    Samples all;
    for (size_t i = 1; i < ttft.size(); ++i)
      all.values.insert(all.values.end(), ttft[i].values.begin(), ttft[i].values.end());
    return all.median();
  }
};

LabResult run_prefix_cache(const LabOptions& o, Progress& progress) {
  const int room = std::min(o.quick ? 1024 : 2048, context_of(o.engine) - kQuestionTokens - kQuestionAnswer);
  const int shared = std::max(kPageTokens, room / kPageTokens * kPageTokens);
  const int repetitions = o.quick ? 3 : 5;
  EngineOptions with = o.engine;
  with.max_num_seqs = 1;
  with.max_model_len = shared + kQuestionTokens + kQuestionAnswer;
  EngineOptions without = with;
  without.prefix_cache = false;
  EnginePair engines(with, without, progress);
  PlaceCosts on, off;
  std::array<uint64_t, 2> rounds{};  // of each engine: a prefix of its own, the same for both
  engines.alternate(o, repetitions, progress, [&](Engine& engine, bool is_on) {
    PlaceCosts& costs = is_on ? on : off;
    const uint64_t round = ++rounds[is_on];
    costs.answers.clear();
    for (size_t i = 0; i < kPrefixRequests; ++i) {
      TokenIds prompt = random_prompt(engine, shared, round);
      const TokenIds question = random_prompt(engine, kQuestionTokens, 1000 * round + i);
      prompt.insert(prompt.end(), question.begin(), question.end());
      TokenIds& answer = costs.answers.emplace_back();
      engine.generate(greedy_request(std::move(prompt), kQuestionAnswer), [&](const Output& out) {
        for (const OutputToken& token : out.tokens) answer.push_back(token.id);
        if (out.finish == FinishReason::kNone) return;
        costs.ttft[i].add(out.usage.ttft_seconds);
        costs.cached[i] = out.usage.cached_tokens;
      });
    }
  });
  const double first_on = on.ttft[0].median(), first_off = off.ttft[0].median();
  const double later_on = on.later(), later_off = off.later(), speedup = later_off / later_on;
  const double rows_ratio = static_cast<double>(shared + kQuestionTokens) / kQuestionTokens;
  const auto ms = [](double seconds) { return 1e3 * seconds; };
  LabResult r;
  r.summary = fmt::format(
      "With {} tokens of shared prefix, the first token comes after {} ms instead of {}: {} as fast.",
      lab_number_text(shared), lab_number_text(ms(later_on)), lab_number_text(ms(later_off)), times_text(speedup));
  r.setup = {
      fmt::format("{} prompts, one after the other, share their first {} tokens and differ in the last {}. {} "
                  "repetitions, each with a prefix that no engine has seen.",
                  kPrefixRequests, shared, kQuestionTokens, repetitions)};
  const std::string model = shell_word(o.engine.model);
  r.commands = {fmt::format("quire serve -m {}", model), fmt::format("quire serve -m {} --no-prefix-cache", model),
                "quire bench serve --help    # --shared-prefix sends such prompts"};
  r.numbers = {
      {.what = "tokens of the first prompt that were found",
       .unit = "tokens",
       .value = static_cast<double>(on.cached[0]),
       .claim = Claim::kEqual,
       .foretold = 0,
       .theory = "nobody has sent this prefix before"},
      {.what = "tokens of the last prompt that were found",
       .unit = "tokens",
       .value = static_cast<double>(on.cached.back()),
       .claim = Claim::kEqual,
       .foretold = static_cast<double>(shared),
       .theory = "whole pages of the shared prefix"},
      {.what = "tokens that were found without a prefix cache",
       .unit = "tokens",
       .value = static_cast<double>(off.cached.back()),
       .claim = Claim::kEqual,
       .foretold = 0,
       .theory = "nothing is looked up"},
      {.what = "answers that differ",
       .value = on.answers == off.answers ? 0.0 : 1.0,
       .claim = Claim::kEqual,
       .foretold = 0,
       .theory = "cached pages have the bits that would be computed again"},
      {.what = "time to the first token of the first prompt",
       .unit = "ms",
       .value = ms(first_on),
       .counted = false,
       .claim = Claim::kAbout,
       .foretold = ms(first_off),
       .factor = 1.3,
       .theory = "that without a prefix cache"},
      {.what = "time to the first token of later prompts", .unit = "ms", .value = ms(later_on), .counted = false},
      {.what = "time to the first token without a prefix cache",
       .unit = "ms",
       .value = ms(later_off),
       .counted = false},
      {.what = "how many times as fast",
       .unit = "times",
       .value = speedup,
       .counted = false,
       .claim = Claim::kAtMost,
       .foretold = rows_ratio,
       .factor = 1.15,
       .theory = "rows with and without: (prefix + question) / question; few rows use the multipliers less well"},
  };
  BarChart chart{.title = "Time to the first token of prompts that begin alike",
                 .y_label = "milliseconds",
                 .names = {"with the prefix cache", "without"}};
  for (size_t i = 0; i < kPrefixRequests; ++i)
    chart.groups.push_back({fmt::format("prompt {}", i + 1), {ms(on.ttft[i].median()), ms(off.ttft[i].median())}});
  r.figures = {{.caption = "From the second prompt on, only the question is computed", .svg = bar_chart_svg(chart)}};
  return r;
}

}  // namespace

constinit const Experiment kPrefixCacheExperiment{
    .name = "prefix-cache",
    .title = "Prefix caching",
    .question = "What does a shared system prompt cost the second time?",
    .technique =
        "Keys and values depend only on the tokens before them, so prompts that begin alike have equal pages. The "
        "engine keeps finished pages in a tree and looks every prompt up in it. What it finds there is not "
        "computed again.",
    .page = "learn/prefix-caching",
    .run = run_prefix_cache};

}  // namespace quire
