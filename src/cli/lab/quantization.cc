// The ladder of weight types: bytes, speed and divergence from the model in 16 bits.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <list>
#include <string>

#include "base/error.h"
#include "cli/bench/limits.h"
#include "cli/bench/prompts.h"
#include "cli/compare/distance_tally.h"
#include "cli/figure/charts.h"
#include "cli/lab/depth_run.h"
#include "cli/lab/experiment.h"
#include "cli/lab/scratch_model.h"
#include "model/registry.h"
#include "ops/cpu/probe.h"
#include "quantize/quantize.h"

namespace quire {
namespace {

// From more bits to fewer; each is the type of all matrices.
constexpr std::array<std::string_view, 6> kLadder{"Q8_0", "Q6_K", "Q5_K", "Q4_K", "Q3_K", "Q2_K"};
constexpr size_t kScoredWindow = 128;  // tokens of a text whose logits are compared
constexpr int kRateDepth = 32, kRateSteps = 12;

SynthShape ladder_shape(int layers) {
  return {.name = "ladder",
          .layers = layers,
          .hidden = 1024,
          .heads = 16,
          .kv_heads = 4,
          .head_dim = 64,
          .ffn = 2816,
          .vocab = 4096,
          .context = 512,
          .rope_theta = 10000,
          .tied = false};
}

// A file of one type, and what it costs.
struct LadderRung {
  std::string type, file;
  double bytes = 0, bits = 0;  // that a step reads: of all weights, of one
  DistanceTally distance = {};
  Samples seconds = {};  // of a decode step
};

bool has_16_bits(const ModelInfo& info) {
  return info.quantization == "BF16" || info.quantization == "F16" || info.quantization == "F32";
}

void write_rung(const std::string& base, const std::string& file, std::string_view type, Team& team) {
  const Checkpoint checkpoint = Checkpoint::open(resolve_model(base));
  const Mix& mix = find_mix(type);
  const QuantizeOptions options{
      .mix = &mix, .pure = true, .output_type = mix.type, .embedding_type = mix.type, .name = std::string(type)};
  QuantizePlan plan = plan_quantization(checkpoint, options);
  write_quantized(checkpoint, plan, options, file, team, [](size_t, size_t) {});
}

// Text for all windows: the built-in prompts of `quire bench speculative`.
TokenIds scored_text(const LoadedModel& model, size_t tokens) {
  if (!model.target.text.tokenizer)
    throw unsupported("{} has no vocabulary, so it cannot read a text", model.info.name);
  std::string text;
  for (const BenchPrompt& prompt : copy_prompts()) text += prompt.text + "\n\n";
  TokenIds ids = model.target.text.tokenizer->encode(text, {.add_special = true, .parse_special = false});
  ids.resize(std::min(ids.size(), tokens) / kScoredWindow * kScoredWindow);
  return ids;
}

// Adds the distance of one model's logits from the other's, window by window.
void add_distances(LoadedModel& base, LoadedModel& model, std::span<const TokenId> text, DistanceTally& tally,
                   const std::function<void()>& check) {
  const auto vocab = static_cast<size_t>(base.target.config.vocab);
  SingleSequence of_base(base), of_model(model);
  for (size_t at = 0; at < text.size(); at += kScoredWindow) {
    check();
    const auto window = text.subspan(at, kScoredWindow);
    of_base.clear();
    of_model.clear();
    const auto expected = of_base.append(window, true), got = of_model.append(window, true);
    for (size_t i = 0; i < window.size(); ++i)
      tally.add(expected.subspan(i * vocab, vocab), got.subspan(i * vocab, vocab),
                i + 1 < window.size() ? window[i + 1] : kNoToken, i);
  }
}

// Of the first core, as Linux tells it ("32768K"); 0: it does not.
double last_level_cache_bytes() {
  std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index3/size");
  double kibibytes = 0;
  return file >> kibibytes ? 1024 * kibibytes : 0;
}

// By how much ln y falls for each step of x, by least squares.
double fall_of_log(std::span<const ChartPoint> points) {
  double x = 0, y = 0, xx = 0, xy = 0;
  for (const ChartPoint& p : points) {
    const double log_y = std::log(p.y);
    x += p.x, y += log_y, xx += p.x * p.x, xy += p.x * log_y;
  }
  const auto n = static_cast<double>(points.size());
  return -(n * xy - x * y) / (n * xx - x * x);
}

struct Ladder {
  int layers, repetitions;           // layers: of the synthetic model
  bool is_given = false;             // the base is the model of the options
  std::list<LadderRung> rungs = {};  // the first is the base
  size_t compared = 0;               // tokens
  Samples bandwidth = {};            // of the memory, in bytes per second
};

void write_ladder(const LabOptions& o, const ScratchFolder& folder, const std::shared_ptr<Runtime>& runtime,
                  Progress& progress, Ladder& ladder) {
  progress.stage("reading " + o.engine.model);
  ladder.is_given = has_16_bits(DepthRun(o.engine, kRateDepth, runtime).model().info);
  const std::string base = ladder.is_given
                               ? o.engine.model
                               : make_scratch_model(folder, ladder_shape(ladder.layers), TensorType::BF16).string();
  ladder.rungs.push_back({.type = "BF16", .file = base});
  progress.stage("quantizing");
  for (size_t i = 0; i < kLadder.size(); ++i) {
    progress.step(i, kLadder.size());
    o.check();
    const std::string file = (folder.path() / fmt::format("{}.gguf", kLadder[i])).string();
    write_rung(base, file, kLadder[i], runtime->team);
    ladder.rungs.push_back({.type = std::string(kLadder[i]), .file = file});
  }
}

void compare_ladder(const LabOptions& o, const std::shared_ptr<Runtime>& runtime, Progress& progress, Ladder& ladder) {
  EngineOptions exact = o.engine;
  exact.activations = exact.kv_cache_dtype = "f32";  // so that only the weights differ
  exact.max_num_seqs = 1;
  exact.max_model_len = exact.max_num_batched_tokens = static_cast<int>(kScoredWindow);
  exact.model = ladder.rungs.front().file;
  progress.stage("comparing logits");
  LoadedModel reference(exact, static_cast<int>(kScoredWindow), runtime);
  const TokenIds text = scored_text(reference, o.quick ? 512 : 2048);
  ladder.compared = text.size();
  size_t done = 0;
  for (LadderRung& rung : ladder.rungs) {
    progress.step(done++, ladder.rungs.size());
    exact.model = rung.file;
    LoadedModel model(exact, static_cast<int>(kScoredWindow), runtime);
    add_distances(reference, model, text, rung.distance, o.check);
  }
}

void time_ladder(const LabOptions& o, const std::shared_ptr<Runtime>& runtime, Progress& progress, Ladder& ladder) {
  std::list<DepthRun> runs;
  progress.stage("loading all types");
  for (LadderRung& rung : ladder.rungs) {
    EngineOptions engine = o.engine;
    engine.model = rung.file;
    runs.emplace_back(engine, kRateDepth + kRateSteps, runtime);
    const ModelInfo& info = runs.back().model().info;
    rung.type = info.quantization;
    rung.bytes = static_cast<double>(info.decode_bytes);
    const ModelConfig& config = runs.back().model().target.config;
    const double looked_up = config.tied_output ? 0 : static_cast<double>(config.vocab) * config.hidden;  // not read
    rung.bits = 8 * rung.bytes / (static_cast<double>(info.parameters) - looked_up);
  }
  ReadProbe probe(runtime->team);
  progress.stage("measuring speed");
  for (int repetition = 0; repetition < ladder.repetitions; ++repetition) {
    progress.step(static_cast<size_t>(repetition), static_cast<size_t>(ladder.repetitions));
    ladder.bandwidth.add(probe.bandwidth(1));
    auto run = runs.begin();
    for (LadderRung& rung : ladder.rungs) {
      o.check();
      run->reach(kRateDepth);
      rung.seconds.add((run++)->decode(kRateSteps).total);
    }
  }
}

std::vector<std::string> ladder_setup(const LabOptions& o, const Ladder& ladder) {
  const std::string model = shell_word(o.engine.model);
  return {
      ladder.is_given
          ? fmt::format("The model {}, whose weights are {}, and files quantized from it.", model,
                        ladder.rungs.front().type)
          : fmt::format("A synthetic model of {} layers with random weights in BF16, because {} is quantized already, "
                        "and files quantized from it. Its divergences order the types as those of a trained model do, "
                        "but they are no measure of what a trained model loses.",
                        ladder.layers, model),
      fmt::format("Every matrix has the one type. KL divergence from the base, in nats, over {} tokens of text with "
                  "activations in float32. Decode rates are those of one sequence; the files take turns, {} times {} "
                  "steps.",
                  ladder.compared, ladder.repetitions, kRateSteps)};
}

std::vector<std::string> ladder_commands(const LabOptions& o, const Ladder& ladder) {
  const std::string source = ladder.is_given ? shell_word(o.engine.model) : "bf16.gguf";
  std::vector<std::string> commands;
  if (!ladder.is_given) commands.push_back("quire synth --shape llama-3.2-1b --type bf16 -o bf16.gguf");
  commands.push_back(fmt::format("quire quantize {} q4_k.gguf --type Q4_K_M --pure", source));
  commands.push_back(fmt::format("quire compare -m q4_k.gguf -b {} -f TEXT", source));
  commands.push_back("quire bench -m q4_k.gguf -p 0 -n 64");
  return commands;
}

void add_rung_numbers(const LadderRung& rung, double bandwidth, double cached, std::vector<LabNumber>& numbers) {
  const DistanceSummary distance = rung.distance.summary();
  numbers.push_back({.what = rung.type + ", bits that a step reads for a weight", .unit = "bits", .value = rung.bits});
  numbers.push_back({.what = rung.type + ", mean KL from the base", .value = distance.mean_kl.value});
  numbers.push_back(
      {.what = rung.type + ", the same most probable token", .unit = "%", .value = 100 * distance.same_top.value});
  LabNumber decode{
      .what = rung.type + ", decode", .unit = "tok/s", .value = 1 / rung.seconds.median(), .counted = false};
  if (rung.bytes > cached) {
    decode.claim = Claim::kAtMost;
    decode.foretold = bandwidth / (rung.bytes - cached);
    decode.factor = 1.15;
    decode.theory = "the memory's read rate over the bytes of a step that do not fit the processor's caches";
  }
  numbers.push_back(std::move(decode));
}

// The divergences of the ladder below its base, and a line with the slope that theory foretells.
void add_divergence(const Ladder& ladder, LabResult& r) {
  ChartLine kl{.name = "mean KL divergence"}, theory{.name = "a quarter for each bit", .theory = true};
  for (auto rung = std::next(ladder.rungs.begin()); rung != ladder.rungs.end(); ++rung)
    kl.points.push_back({rung->bits, rung->distance.summary().mean_kl.value});
  std::ranges::reverse(kl.points);
  if (std::ranges::all_of(kl.points, [](const ChartPoint& p) { return p.y > 0; })) {
    r.numbers.push_back({.what = "by how much the divergence falls for each bit",
                         .unit = "times",
                         .value = std::exp(fall_of_log(kl.points)),
                         .claim = Claim::kAbout,
                         .foretold = 4,
                         .factor = 1.5,
                         .theory = "a bit halves the step between numbers, and the divergence grows with its square"});
    for (const ChartPoint& p : kl.points)
      theory.points.push_back({p.x, kl.points.back().y * std::pow(4, kl.points.back().x - p.x)});
  }
  r.figures.push_back({.caption = "Fewer bits, more divergence",
                       .svg = line_chart_svg({.title = "Divergence from the base by bits of a weight",
                                              .x_label = "bits that a step reads for a weight",
                                              .y_label = "nats",
                                              .log_y = true,
                                              .lines = {kl, theory}})});
}

LabResult run_quantization(const LabOptions& o, Progress& progress) {
  const ScratchFolder folder("lab");
  const auto runtime = std::make_shared<Runtime>(o.engine);
  Ladder ladder{.layers = o.quick ? 10 : 16, .repetitions = o.quick ? 3 : 7};
  write_ladder(o, folder, runtime, progress, ladder);
  compare_ladder(o, runtime, progress, ladder);
  time_ladder(o, runtime, progress, ladder);
  LabResult r{.summary = {}, .setup = ladder_setup(o, ladder), .commands = ladder_commands(o, ladder)};
  BarChart rates{.title = "Decode speed by weight type",
                 .y_label = "tokens per second",
                 .names = {"measured", "the memory's read rate"}};
  const double cached = last_level_cache_bytes(), bandwidth = ladder.bandwidth.high();
  for (const LadderRung& rung : ladder.rungs) {
    add_rung_numbers(rung, bandwidth, cached, r.numbers);
    rates.groups.push_back({rung.type, {1 / rung.seconds.median(), bandwidth / rung.bytes}});
  }
  add_divergence(ladder, r);
  r.figures.push_back({.caption = "Fewer bytes, more tokens", .svg = bar_chart_svg(rates)});
  const LadderRung &first = ladder.rungs.front(), &last = ladder.rungs.back(),
                   &second = *std::next(ladder.rungs.begin());
  r.summary = fmt::format(
      "{} reads {} as many bytes as {}, which decodes {} as fast; the mean KL divergence of {} is {:.2g}, that of {} "
      "{:.2g}.",
      first.type, times_text(first.bytes / last.bytes), last.type,
      times_text(first.seconds.median() / last.seconds.median()), last.type, last.distance.summary().mean_kl.value,
      second.type, second.distance.summary().mean_kl.value);
  return r;
}

}  // namespace

constinit const Experiment kQuantizationExperiment{
    .name = "quantization",
    .title = "The quantization ladder",
    .question = "What does each bit of the weights buy and cost?",
    .technique =
        "To decode a token, the engine reads all weights once, so its speed is that of the memory. Blocks of fewer "
        "bits make the weights smaller and the step shorter. What they lose shows in the probabilities of the next "
        "token, as KL divergence from the model in 16 bits.",
    .page = "learn/quantized-kernels",
    .run = run_quantization};

}  // namespace quire
