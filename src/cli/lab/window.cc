// Attention through a window: bytes of the cache and time of attention by depth.

#include <fmt/format.h>

#include <array>
#include <list>

#include "cli/bench/limits.h"
#include "cli/figure/charts.h"
#include "cli/lab/depth_run.h"
#include "cli/lab/experiment.h"
#include "cli/lab/scratch_model.h"

namespace quire {
namespace {

constexpr int kWindowLayers = 4, kWindowHeads = 16, kWindowKvHeads = 4, kWindowHeadDim = 64;

SynthShape windowed_shape(std::string_view name, int window, int context) {
  return {.name = name,
          .layers = kWindowLayers,
          .hidden = kWindowHeads * kWindowHeadDim,
          .heads = kWindowHeads,
          .kv_heads = kWindowKvHeads,
          .head_dim = kWindowHeadDim,
          .ffn = 1024,
          .vocab = 512,
          .context = context,
          .rope_theta = 10000,
          .tied = true,
          .window = window};
}

LabResult run_window(const LabOptions& o, Progress& progress) {
  const int window = o.quick ? 256 : 512, deepest = o.quick ? 4096 : 8192, repetitions = o.quick ? 3 : 5, steps = 8;
  const int context = deepest + repetitions * steps;
  const ScratchFolder folder("lab");
  const auto runtime = std::make_shared<Runtime>(o.engine);
  std::list<DepthRun> runs;  // without a window, and with it
  progress.stage("making models");
  for (const bool has_window : {false, true}) {
    EngineOptions engine = o.engine;
    engine.model =
        make_scratch_model(folder, windowed_shape(has_window ? "window" : "full", has_window ? window : 0, context),
                           TensorType::Q8_0)
            .string();
    runs.emplace_back(engine, context, runtime);
  }
  DepthRun &full = runs.front(), &windowed = runs.back();
  std::array<ChartLine, 2> times{{{.name = "all tokens"}, {.name = fmt::format("window of {}", window)}}};
  std::array<ChartLine, 2> bytes = times;
  std::array<Samples, 2> shallow, deep;  // attention
  progress.stage("measuring");
  for (int depth = window / 2; depth <= deepest; depth *= 2) {
    std::array<Samples, 2> here;
    for (int repetition = 0; repetition < repetitions; ++repetition) {
      for (size_t i = 0; i < runs.size(); ++i) {
        o.check();
        DepthRun& run = i == 0 ? full : windowed;
        run.reach(depth + repetition * steps);
        here[i].add(run.decode(steps).attention);
      }
    }
    for (size_t i = 0; i < runs.size(); ++i) {
      const CacheLayout& layout = (i == 0 ? full : windowed).model().cache.layout;
      times[i].points.push_back({static_cast<double>(depth), 1e3 * here[i].median()});
      bytes[i].points.push_back({static_cast<double>(depth), static_cast<double>(layout.sequence_bytes(depth)) / 1e6});
    }
    if (depth == 2 * window) shallow = here;
    deep = here;
  }
  const auto cache_bytes = [&](const DepthRun& run) {
    return static_cast<double>(run.model().cache.layout.sequence_bytes(deepest));
  };
  const auto token_bytes = static_cast<double>(full.model().info.kv_bytes_per_token);
  const double time_ratio = deep[0].median() / deep[1].median();
  LabResult r;
  r.summary = fmt::format(
      "At {} tokens, the cache without a window is {} as large as with one of {}, and attention takes {} as long.",
      lab_number_text(deepest), times_text(cache_bytes(full) / cache_bytes(windowed)), window, times_text(time_ratio));
  r.setup = {
      fmt::format("Two synthetic models of {} layers with {} query heads and {} KV heads of {}: every layer sees all "
                  "tokens, or the last {}. One sequence decodes at depths from {} to {}; the models take turns, {} "
                  "times {} steps at each depth. The bytes are those of the pages that a sequence holds.",
                  kWindowLayers, kWindowHeads, kWindowKvHeads, kWindowHeadDim, window, window / 2,
                  lab_number_text(deepest), repetitions, steps)};
  r.commands = {"quire inspect -m MODEL    # shows the windows of a model and its cache",
                "quire bench -m MODEL -p 0 -n 16 -d 0,2048,8000 --profile    # attention by depth"};
  r.numbers = {
      {.what = fmt::format("cache of {} tokens, all kept", lab_number_text(deepest)),
       .unit = "bytes",
       .value = cache_bytes(full),
       .claim = Claim::kEqual,
       .foretold = token_bytes * deepest,
       .theory = "tokens x bytes of a token"},
      {.what = fmt::format("with a window of {}", window),
       .unit = "bytes",
       .value = cache_bytes(windowed),
       .claim = Claim::kAtMost,
       .foretold = token_bytes * (window + 2 * kPageTokens),
       .theory = "the window, and a page at either end of it"},
      {.what = fmt::format("attention of a step at {} tokens, all visible", lab_number_text(deepest)),
       .unit = "ms",
       .value = 1e3 * deep[0].median(),
       .counted = false},
      {.what = "attention with the window", .unit = "ms", .value = 1e3 * deep[1].median(), .counted = false},
      {.what = "without a window compared with it",
       .unit = "times",
       .value = time_ratio,
       .counted = false,
       .claim = Claim::kAtMost,
       .foretold = static_cast<double>(deepest) / window,
       .factor = 1.15,
       .theory = "tokens / window; starting the operation takes the same time for both"},
      {.what = fmt::format("attention at {} tokens compared with {}, with the window", lab_number_text(deepest),
                           2 * window),
       .unit = "times",
       .value = deep[1].median() / shallow[1].median(),
       .counted = false,
       .claim = Claim::kAbout,
       .foretold = 1,
       .factor = 1.3,
       .theory = "a step sees as many tokens at any depth"},
      {.what = "attention at these lengths compared, without a window",
       .unit = "times",
       .value = deep[0].median() / shallow[0].median(),
       .counted = false,
       .claim = Claim::kAbout,
       .foretold = deepest / (2.0 * window),
       .factor = 1.5,
       .theory = "the ratio of the depths"},
  };
  r.figures = {{.caption = "Attention stops growing where the window is full",
                .svg = line_chart_svg({.title = "Attention of one decode step",
                                       .x_label = "tokens so far",
                                       .y_label = "milliseconds",
                                       .lines = {times.begin(), times.end()}})},
               {.caption = "So does the cache",
                .svg = line_chart_svg({.title = "Cache of a sequence",
                                       .x_label = "tokens so far",
                                       .y_label = "megabytes",
                                       .lines = {bytes.begin(), bytes.end()}})}};
  return r;
}

}  // namespace

constinit const Experiment kWindowExperiment{
    .name = "window",
    .title = "Sliding windows",
    .question = "What does a layer save that sees only the last tokens?",
    .technique =
        "A layer with a sliding window attends to the last tokens only. The engine gives back the pages that the "
        "window has passed, so cache and attention of such a layer stop growing. Models mix such layers with a few "
        "that see everything, or let information pass from layer to layer.",
    .page = "learn/heads-and-windows",
    .run = run_window};

}  // namespace quire
