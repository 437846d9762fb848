// Contiguous against paged allocation of the KV cache, simulated over lengths of requests.

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>
#include <random>

#include "base/error.h"
#include "cli/figure/charts.h"
#include "cli/lab/cache_allocation.h"
#include "cli/lab/experiment.h"
#include "kernels/types.h"
#include "load/trace.h"

namespace quire {
namespace {

// Of the drawn lengths: log-normal, as conversations are, with medians in tokens.
constexpr double kPromptMedian = 250, kPromptSigma = 1.2, kAnswerMedian = 130, kAnswerSigma = 1.0;
constexpr int kLongestDrawn = 2048;  // of a prompt and of an answer
constexpr int kPoolSequences = 16;   // of the longest, that the pool holds

std::vector<SequenceLength> draw_conversations(size_t count) {
  std::mt19937_64 random(11);
  const auto uniform = [&] {
    return (static_cast<double>(random() >> 11) + 0.5) / static_cast<double>(uint64_t{1} << 53);
  };
  const auto draw = [&](double median, double sigma) {
    const double radius = std::sqrt(-2 * std::log(uniform()));  // Box and Muller, in this order on every compiler
    const double normal = radius * std::cos(2 * std::numbers::pi * uniform());
    return static_cast<int>(std::clamp(median * std::exp(sigma * normal), 1.0, static_cast<double>(kLongestDrawn)));
  };
  std::vector<SequenceLength> lengths(count);
  for (SequenceLength& length : lengths)
    length = {draw(kPromptMedian, kPromptSigma), draw(kAnswerMedian, kAnswerSigma)};
  return lengths;
}

// The first requests of the trace that have a prompt and an answer.
std::vector<SequenceLength> traced_lengths(const std::string& path, size_t most) {
  // So that the slots of the pool fit an int, and the simulation takes seconds.
  constexpr int kLongestPrompt = 1 << 22, kLongestAnswerTraced = 1 << 16;
  std::vector<SequenceLength> lengths;
  for (const TraceRow& row : read_trace(path)) {
    if (row.input_tokens < 1 || row.output_tokens < 1 || lengths.size() == most) continue;
    if (row.input_tokens > kLongestPrompt || row.output_tokens > kLongestAnswerTraced)
      throw invalid("--trace {}: a request has {} and {} tokens; the simulation takes at most {} and {}", path,
                    row.input_tokens, row.output_tokens, kLongestPrompt, kLongestAnswerTraced);
    lengths.push_back({row.input_tokens, row.output_tokens});
  }
  if (lengths.empty()) throw invalid("--trace {}: no request has a prompt and an answer", path);
  return lengths;
}

// Slots that all steps use, and the tokens of all answers.
struct LengthSums {
  double used = 0, steps = 0;
};
LengthSums sums_of(const std::vector<SequenceLength>& lengths) {
  LengthSums sums;
  for (const SequenceLength& l : lengths) {
    const double p = l.prompt, n = l.answer;
    sums.used += n * p + n * (n - 1) / 2;
    sums.steps += n;
  }
  return sums;
}

double in_percent(double part) { return 100 * part; }

LabResult run_paging(const LabOptions& o, Progress& progress) {
  const size_t most = o.quick ? 2000 : 20000;
  const std::vector<SequenceLength> lengths =
      o.trace.empty() ? draw_conversations(most) : traced_lengths(o.trace, most);
  int longest = kPageTokens;
  for (const SequenceLength& l : lengths) longest = std::max(longest, l.prompt + l.answer);
  longest = (longest + kPageTokens - 1) / kPageTokens * kPageTokens;
  const int pool = kPoolSequences * static_cast<int>(std::bit_ceil(static_cast<uint32_t>(longest)));
  const int most_contiguous = pool / longest;  // sequences
  progress.stage("simulating allocators");
  std::vector<PoolRun> runs;
  for (const CacheAllocation allocation :
       {CacheAllocation::kContiguous, CacheAllocation::kDoubling, CacheAllocation::kPaged}) {
    progress.step(runs.size(), 3);
    o.check();
    runs.push_back(run_pool(allocation, lengths, longest, pool));
  }
  const PoolRun &contiguous = runs[0], &doubling = runs[1], &paged = runs[2];
  const LengthSums sums = sums_of(lengths);
  const double mean = sums.used / sums.steps;  // tokens of a sequence in a step
  LabResult r;
  r.summary = fmt::format(
      "Contiguous allocation wastes {:.0f} % of the memory it reserves, pages {:.1f} %; the same memory runs {} as "
      "many sequences.",
      in_percent(contiguous.use.waste()), in_percent(paged.use.waste()),
      times_text(paged.running / contiguous.running));
  const std::string source =
      o.trace.empty()
          ? fmt::format(
                "{} requests with log-normal lengths: prompts of median {} tokens and sigma {}, answers of median "
                "{} and sigma {}, each cut at {}. `--trace FILE` takes a trace of Azure or Mooncake instead.",
                lengths.size(), kPromptMedian, kPromptSigma, kAnswerMedian, kAnswerSigma, kLongestDrawn)
          : fmt::format("The first {} requests of the trace that have a prompt and an answer, in its order.",
                        lengths.size());
  r.setup = {
      source,
      fmt::format("A simulation, without a model: a pool of {} token slots, sequences that grow by a token each "
                  "step, the engine's own page tables with pages of {} tokens. Contiguous allocation reserves the "
                  "longest request, {} tokens, for each sequence, as Orca does. Doubling reserves the next power "
                  "of two and copies; what its blocks lose between them is not counted.",
                  lab_number_text(pool), kPageTokens, lab_number_text(longest))};
  r.commands = {fmt::format("quire lab paging{}", o.trace.empty() ? "" : " --trace " + shell_word(o.trace)),
                fmt::format("quire serve -m {}    # metrics quire:kv_cache_usage_perc and quire:num_preemptions_total",
                            shell_word(o.engine.model))};
  r.numbers = {
      {.what = "slots reserved and not used, contiguous",
       .unit = "%",
       .value = in_percent(contiguous.use.waste()),
       .claim = Claim::kAbout,
       .foretold = in_percent(1 - mean / longest),
       .factor = 1.0001,
       .theory = "1 - mean length / longest"},
      {.what = "slots reserved and not used, doubling",
       .unit = "%",
       .value = in_percent(doubling.use.waste()),
       .claim = Claim::kAbout,
       .foretold = 25,
       .factor = 1.5,
       .theory = "a length between half the block and the block uses three quarters of it on average"},
      {.what = "slots reserved and not used, paged",
       .unit = "%",
       .value = in_percent(paged.use.waste()),
       .claim = Claim::kAbout,
       .foretold = in_percent((kPageTokens - 1) / 2.0 / (mean + (kPageTokens - 1) / 2.0)),
       .factor = 1.25,
       .theory = "half a page of each sequence, whatever its length"},
      {.what = "slots that a paged sequence does not use",
       .unit = "slots",
       .value = (paged.use.reserved - paged.use.used) / (paged.running * static_cast<double>(paged.steps)),
       .claim = Claim::kAtMost,
       .foretold = kPageTokens - 1,
       .theory = "only the last page has free slots"},
      {.what = "sequences that run together, contiguous",
       .value = contiguous.running,
       .claim = Claim::kAtMost,
       .foretold = static_cast<double>(most_contiguous),
       .theory = "pool / longest"},
      {.what = "sequences that run together, doubling",
       .value = doubling.running,
       .claim = Claim::kAtMost,
       .foretold = pool / mean,
       .theory = "pool / mean length, if nothing were wasted"},
      {.what = "paged",
       .value = paged.running,
       .claim = Claim::kAtMost,
       .foretold = pool / mean,
       .theory = "pool / mean length"},
      {.what = "steps until all have ended, contiguous",
       .value = static_cast<double>(contiguous.steps),
       .claim = Claim::kAtLeast,
       .foretold = sums.steps / static_cast<double>(most_contiguous),
       .theory = "tokens of all answers / sequences that run together"},
      {.what = "steps until all have ended, paged",
       .value = static_cast<double>(paged.steps),
       .claim = Claim::kAtLeast,
       .foretold = sums.used / pool,
       .theory = "slots of all steps / pool"},
      {.what = "tokens that doubling copies, for each generated one",
       .value = static_cast<double>(doubling.copied) / sums.steps},
      {.what = "preemptions, paged", .value = static_cast<double>(paged.preemptions)},
      {.what = "tokens computed again after them, for each generated one",
       .value = static_cast<double>(paged.recomputed) / sums.steps},
  };
  BarChart waste{.title = "What the reserved memory holds",
                 .y_label = "percent of the reserved slots",
                 .names = {"tokens", "nothing"}};
  BarChart running{
      .title = "Sequences that the same memory runs together", .y_label = "sequences", .names = {"sequences"}};
  for (const auto& [name, run] :
       {std::pair{"contiguous", &contiguous}, std::pair{"doubling", &doubling}, std::pair{"paged", &paged}}) {
    waste.groups.push_back({name, {in_percent(1 - run->use.waste()), in_percent(run->use.waste())}});
    running.groups.push_back({name, {run->running}});
  }
  r.figures = {{.caption = "Contiguous allocation reserves for the longest request; pages follow the sequence",
                .svg = bar_chart_svg(waste)},
               {.caption = "Memory that is not wasted holds more sequences", .svg = bar_chart_svg(running)}};
  return r;
}

}  // namespace

constinit const Experiment kPagingExperiment{
    .name = "paging",
    .title = "Paging",
    .question = "How much memory does a KV cache waste that reserves room for the longest answer?",
    .technique =
        "Nobody knows how long an answer will be, so a contiguous cache reserves the longest for each sequence. "
        "A paged cache hands out pages of 16 tokens as a sequence grows, wherever they lie. What it wastes is "
        "the end of each sequence's last page.",
    .page = "learn/paging",
    .run = run_paging};

}  // namespace quire
