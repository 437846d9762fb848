// Multi-head, grouped-query and multi-query attention: bytes of the cache, and the time of attention.

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

constexpr int kQueryHeads = 16, kQueryHeadDim = 64;

struct HeadVariant {
  std::string_view name, title;
  int kv_heads;
};
constexpr std::array<HeadVariant, 3> kHeadVariants{
    {{"mha", "MHA, 16 KV heads", kQueryHeads}, {"gqa", "GQA, 4 KV heads", 4}, {"mqa", "MQA, 1 KV head", 1}}};

SynthShape head_shape(const HeadVariant& variant, int layers, int context) {
  return {.name = variant.name,
          .layers = layers,
          .hidden = kQueryHeads * kQueryHeadDim,
          .heads = kQueryHeads,
          .kv_heads = variant.kv_heads,
          .head_dim = kQueryHeadDim,
          .ffn = 1024,
          .vocab = 512,
          .context = context,
          .rope_theta = 10000,
          .tied = true};
}

// 0: numbers of this type have scales besides.
double number_bytes(std::string_view kv_cache_dtype) {
  if (kv_cache_dtype == "f32") return 4;
  return kv_cache_dtype == "bf16" || kv_cache_dtype == "f16" ? 2 : 0;
}

LabResult run_kv_heads(const LabOptions& o, Progress& progress) {
  const int layers = 4, deepest = o.quick ? 4096 : 8192, repetitions = o.quick ? 3 : 5, steps = 8;
  const int points = 4, context = deepest + repetitions * steps;
  const ScratchFolder folder("lab");
  const auto runtime = std::make_shared<Runtime>(o.engine);
  std::list<DepthRun> runs;
  progress.stage("making models");
  for (const HeadVariant& variant : kHeadVariants) {
    EngineOptions engine = o.engine;
    engine.model = make_scratch_model(folder, head_shape(variant, layers, context), TensorType::Q8_0).string();
    runs.emplace_back(engine, context, runtime);
  }
  std::array<ChartLine, kHeadVariants.size()> lines;
  std::array<Samples, kHeadVariants.size()> attention, step;  // at the deepest point
  std::array<double, kHeadVariants.size()> token_bytes{};
  progress.stage("measuring");
  for (int point = 1; point <= points; ++point) {
    progress.step(static_cast<size_t>(point - 1), points);
    const int depth = deepest * point / points;
    std::array<Samples, kHeadVariants.size()> here, whole;
    for (int repetition = 0; repetition < repetitions; ++repetition) {
      size_t i = 0;
      for (DepthRun& run : runs) {
        o.check();
        run.reach(depth + repetition * steps);
        const DepthTime time = run.decode(steps);
        here[i].add(time.attention);
        whole[i++].add(time.total);
      }
    }
    for (size_t i = 0; i < lines.size(); ++i)
      lines[i].points.push_back({static_cast<double>(depth), 1e3 * here[i].median()});
    attention = here;
    step = whole;
  }
  LabResult r;
  size_t i = 0;
  for (const DepthRun& run : runs) {
    token_bytes[i] = static_cast<double>(run.model().info.kv_bytes_per_token);
    lines[i].name = kHeadVariants[i].title;
    LabNumber cache{
        .what = fmt::format("cache of a token, {}", kHeadVariants[i].title), .unit = "bytes", .value = token_bytes[i]};
    if (const double number = number_bytes(run.model().info.kv_cache_dtype); number > 0) {
      cache.claim = Claim::kEqual;
      cache.foretold = 2.0 * layers * kHeadVariants[i].kv_heads * kQueryHeadDim * number;
      cache.theory = "2 x layers x KV heads x head size x bytes per number";
    }
    r.numbers.push_back(std::move(cache));
    ++i;
  }
  const auto ms = [](const Samples& samples) { return 1e3 * samples.median(); };
  const double gqa = attention[0].median() / attention[1].median(), mqa = attention[0].median() / attention[2].median();
  for (i = 0; i < kHeadVariants.size(); ++i)
    r.numbers.push_back(
        {.what = fmt::format("attention of a step at {} tokens, {}", lab_number_text(deepest), kHeadVariants[i].title),
         .unit = "ms",
         .value = ms(attention[i]),
         .counted = false});
  r.numbers.push_back({.what = "attention, MHA compared with GQA",
                       .unit = "times",
                       .value = gqa,
                       .counted = false,
                       .claim = Claim::kAbout,
                       .foretold = token_bytes[0] / token_bytes[1],
                       .factor = 1.5,
                       .theory = "the bytes of the caches; less if multiplying takes longer, more if only the smaller "
                                 "one stays in the processor's caches"});
  r.numbers.push_back({.what = "attention, MHA compared with MQA",
                       .unit = "times",
                       .value = mqa,
                       .counted = false,
                       .claim = Claim::kAtMost,
                       .foretold = token_bytes[0] / token_bytes[2],
                       .factor = 1.15,
                       .theory = "the bytes of the caches, under the same conditions"});
  r.numbers.push_back({.what = "whole step, MHA compared with MQA",
                       .unit = "times",
                       .value = step[0].median() / step[2].median(),
                       .counted = false,
                       .claim = Claim::kAtMost,
                       .foretold = mqa,
                       .factor = 1.15,
                       .theory = "attention alone: the rest of a step does not shrink as much"});
  r.summary = fmt::format(
      "With 4 KV heads for {} query heads a token's cache takes a quarter of the bytes, and at {} tokens attention is "
      "{} as fast; with one KV head, {}.",
      kQueryHeads, lab_number_text(deepest), times_text(gqa), times_text(mqa));
  r.setup = {
      fmt::format("Three synthetic models of {} layers with {} query heads of {}, hidden size {}, Q8_0 weights, which "
                  "differ in the number of KV heads. One sequence decodes at {} depths up to {} tokens; the models "
                  "take turns, {} times {} steps at each depth.",
                  layers, kQueryHeads, kQueryHeadDim, kQueryHeads * kQueryHeadDim, points, lab_number_text(deepest),
                  repetitions, steps)};
  r.commands = {"quire inspect -m smollm2    # the cache of a token",
                "quire bench -m smollm2 -p 0 -n 16 -d 0,2048,8000 --profile    # attention by depth"};
  LineChart chart{.title = "Attention of one decode step",
                  .x_label = "tokens in the cache",
                  .y_label = "milliseconds",
                  .lines = {lines.begin(), lines.end()}};
  r.figures = {{.caption = "Fewer KV heads, less to read", .svg = line_chart_svg(chart)}};
  return r;
}

}  // namespace

constinit const Experiment kKvHeadsExperiment{
    .name = "kv-heads",
    .title = "Fewer KV heads",
    .question = "What do grouped-query and multi-query attention save?",
    .technique =
        "In multi-head attention (MHA) each query head has keys and values of its own. Grouped-query attention "
        "(GQA) shares them among a group of query heads, multi-query attention (MQA) among all. The cache, and "
        "what a decode step reads of it, shrink by the size of a group.",
    .page = "learn/heads-and-windows",
    .run = run_kv_heads};

}  // namespace quire
