// Tiled attention: the memory of a score matrix against that of tiles, and the time by length of the prompt.

#include <fmt/format.h>

#include <algorithm>

#include "cli/bench/limits.h"
#include "cli/figure/charts.h"
#include "cli/lab/depth_run.h"
#include "cli/lab/experiment.h"
#include "cli/lab/stepped_run.h"
#include "kernels/kernels.h"
#include "ops/cpu/attention.h"

namespace quire {
namespace {

constexpr int kLongestCounted = 131072, kShortestCounted = 512;

LabResult run_tiled_attention(const LabOptions& o, Progress& progress) {
  const int context = context_of(o.engine), repetitions = o.quick ? 3 : 5;
  const int longest = std::min(o.quick ? 2048 : 4096, context), shortest = longest / 2;
  progress.stage("loading " + o.engine.model);
  const auto runtime = std::make_shared<Runtime>(o.engine);
  DepthRun run(o.engine, longest, runtime);
  const auto attention = first_attention(run.model().target.config);
  if (!attention) throw unsupported("{} has no layer with attention to measure", o.engine.model);
  const int heads = attention->heads, rows = run.model().plan.limits.max_rows, threads = runtime->team.size();
  // What the operation allocates for prompts of n tokens, and what its threads have on their stacks.
  const auto tiled_bytes = [&](int n) {
    const AttentionOp::Limits limits{.max_rows = rows,
                                     .max_positions = n,
                                     .tiles_per_row = AttentionOp::tiles_per_row(heads, attention->kv_heads),
                                     .value_dim = attention->value_dim};
    return static_cast<double>(AttentionOp::memory_bytes(threads, limits)) +
           static_cast<double>(threads) * kMaxTileQueries * kAttentionBlock * sizeof(float);
  };
  const auto matrix_bytes = [&](int n) { return sizeof(float) * static_cast<double>(heads) * n * n; };
  ChartLine matrix{.name = "score matrix"}, tiles{.name = "tiles"};
  for (int n = kShortestCounted; n <= kLongestCounted; n *= 2) {
    matrix.points.push_back({static_cast<double>(n), matrix_bytes(n) / 1e6});
    tiles.points.push_back({static_cast<double>(n), tiled_bytes(n) / 1e6});
  }
  Samples short_rate, long_rate;  // products of all heads and layers a second
  progress.stage("measuring prompts");
  for (int i = 0; i < repetitions; ++i) {
    progress.step(static_cast<size_t>(i), static_cast<size_t>(repetitions));
    for (const int n : {shortest, longest}) {
      o.check();
      run.reach(0);
      const double seconds = run.reach(n).attention;
      (n == shortest ? short_rate : long_rate).add(attention_products(0, n) / seconds);
    }
  }
  const double ratio = matrix_bytes(longest) / tiled_bytes(longest);
  LabResult r;
  r.summary =
      fmt::format("For a prompt of {} tokens a score matrix takes {} as much memory as tiles; for {} tokens, {}.",
                  lab_number_text(longest), times_text(ratio), lab_number_text(kLongestCounted),
                  times_text(matrix_bytes(kLongestCounted) / tiled_bytes(kLongestCounted)));
  r.setup = {fmt::format(
                 "Memory is counted, from the model's shape ({} heads): of one layer's float32 scores as a matrix, and "
                 "of the engine's attention, what it allocates for {} threads and {} rows a step, with tiles of {} x "
                 "{} scores on each thread's stack. The engine has no attention that stores a score matrix, so "
                 "none is timed.",
                 heads, threads, rows, kMaxTileQueries, kAttentionBlock),
             fmt::format("Time is measured: of attention in prompts of {} and {} tokens, {} times each in turns.",
                         shortest, longest, repetitions)};
  r.commands = {fmt::format("quire bench -m {} -p {},{} -n 0 --profile    # attention by length",
                            shell_word(o.engine.model), shortest, longest)};
  r.numbers = {
      {.what = fmt::format("score matrix of {} tokens", lab_number_text(longest)),
       .unit = "bytes",
       .value = matrix_bytes(longest)},
      {.what = fmt::format("tiles for {} tokens", lab_number_text(longest)),
       .unit = "bytes",
       .value = tiled_bytes(longest)},
      {.what = "score matrix, twice the tokens",
       .unit = "times",
       .value = matrix_bytes(2 * longest) / matrix_bytes(longest),
       .claim = Claim::kEqual,
       .foretold = 4,
       .theory = "n^2"},
      {.what = fmt::format("tiles of {} tokens compared with {}", lab_number_text(kLongestCounted),
                           lab_number_text(longest)),
       .unit = "times",
       .value = tiled_bytes(kLongestCounted) / tiled_bytes(longest),
       .claim = Claim::kAtMost,
       .foretold = static_cast<double>(kLongestCounted) / longest,
       .theory = "at worst they grow with the splits of a long sequence, n; the scores of a tile never"},
      {.what = fmt::format("products of a query and a key a second, {} tokens", lab_number_text(shortest)),
       .value = short_rate.median(),
       .counted = false},
      {.what = fmt::format("products a second, {} tokens", lab_number_text(longest)),
       .value = long_rate.median(),
       .counted = false,
       .claim = Claim::kAbout,
       .foretold = short_rate.median(),
       .factor = 1.5,
       .theory = "the same rate: the work is n (n + 1) / 2, and tiles stay in the cache whatever n is"},
  };
  LineChart chart{.title = "Memory for the scores of one layer",
                  .x_label = "tokens of the prompt",
                  .y_label = "megabytes",
                  .log_x = true,
                  .log_y = true,
                  .lines = {matrix, tiles}};
  r.figures = {{.caption = "A score matrix grows with the square of the prompt", .svg = line_chart_svg(chart)}};
  return r;
}

}  // namespace

constinit const Experiment kTiledAttentionExperiment{
    .name = "tiled-attention",
    .title = "Tiled attention",
    .question = "How much memory do the scores of a long prompt need?",
    .technique =
        "Attention compares each token with all before it, which gives a matrix of n x n scores in each head. "
        "Computed in tiles, with a running maximum and sum for each row, no score needs to be kept (Milakov and "
        "Gimelshein 2018; Dao et al. 2022). The tiles of a thread have the same size for any prompt.",
    .page = "learn/tiled-attention",
    .run = run_tiled_attention};

}  // namespace quire
