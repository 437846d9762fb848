#include "cli/verify/kernels.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cassert>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <memory>
#include <random>
#include <span>

#include "base/error.h"
#include "cli/terminal/text_table.h"
#include "kernels/kernels.h"
#include "model/tensors.h"
#include "ops/cpu/tuning.h"

namespace quire {
namespace {

constexpr double kMostMeanKl = 1e-4;
constexpr int kRowCounts[] = {1, 5, 12, 17}, kGatedRows[] = {3};  // ascending
constexpr int kMostRows = 17;
constexpr int kPanelsCompared = 5;  // loops multiply up to 4 at once
constexpr int kMaxLogits = 128;
// How a linear ends, in turn from matrix to matrix.
constexpr Nonlinearity kNonlinearities[] = {Nonlinearity::kSilu,    Nonlinearity::kGelu,  Nonlinearity::kGeluTanh,
                                            Nonlinearity::kSigmoid, Nonlinearity::kRelu2, Nonlinearity::kClampedSwiglu};
constexpr Activations kForms[] = {Activations::kF32, Activations::kBf16, Activations::kInt8, Activations::kInt8x2,
                                  Activations::kInt8Row};
constexpr const char* kText =
    "A quire is a set of folded sheets, and a book is made of many quires. The binder sews them one after another, "
    "presses them, and cuts the edges; only then can the reader turn the pages from the first word to the last.";

std::vector<const KernelSet*> choose(const std::vector<std::string>& names) {
  std::vector<const KernelSet*> sets(available_kernels().begin(), available_kernels().end());
  if (!names.empty()) {
    sets.clear();
    for (const std::string& name : names) sets.push_back(&choose_kernels(name));
  }
  if (sets.size() < 2)
    throw invalid("{} is the only kernel set, so there is nothing to compare it with", sets[0]->name);
  return sets;
}

// Those that linears read. Experts that are read from a file are compared as parts of the model alone.
std::vector<const PackedMatrix*> matrices_of(const ModelConfig& config, const Weights& weights) {
  std::vector<const PackedMatrix*> all;
  for_each_matrix(config, weights, [&](const Slot& slot, const Linear& m) {
    if (!is_table(slot.tensor) && m.weight.data) all.push_back(&m.weight);
  });
  return all;
}

// Some panels of a matrix, and what they are multiplied by.
struct PanelTest {
  PackedMatrix panels;  // as a matrix of its own
  Activations to;
  std::span<const float> x;  // [.., cols]
  // Unless it is kNone, the panels gate themselves, and biases and a scale are applied.
  Nonlinearity nonlinearity;
};

PackedMatrix some_panels(const PackedMatrix& matrix, int first) {
  PackedMatrix some = matrix;
  some.data = matrix.panel(first);
  some.rows = std::min(kPanelsCompared * kPanel, matrix.rows - first * kPanel);
  return some;
}

// The outputs [rows, panels.rows] for the first rows of x. loop: nullptr: the set's own.
std::vector<float> outputs_of(const PanelTest& test, const KernelSet& kernels, int rows, const LinearLoop* loop) {
  const PackedMatrix& panels = test.panels;
  const size_t stride = static_cast<size_t>(panels.blocks()) * activation_block_bytes(test.to);
  std::vector<std::byte> memory(stride * padded_rows(rows) + 64);
  void* aligned = memory.data();
  size_t space = memory.size();
  auto* blocks = static_cast<std::byte*>(std::align(64, space - 64, aligned, space));
  kernels.quantize({.x = test.x.data(),
                    .x_stride = static_cast<size_t>(panels.cols),
                    .cols = panels.cols,
                    .to = test.to,
                    .out = blocks,
                    .out_stride = stride},
                   0, rows);
  const auto outputs = static_cast<size_t>(panels.rows);
  std::vector<float> y(static_cast<size_t>(rows) * outputs);
  LinearArgs args{.weights = &panels,
                  .activations = test.to,
                  .x = blocks,
                  .x_stride = stride,
                  .y = y.data(),
                  .y_stride = outputs,
                  .loop = loop};
  const std::vector<float> bias(outputs, 0.75f);
  if (test.nonlinearity != Nonlinearity::kNone) {
    args.nonlinearity = test.nonlinearity;
    args.up = &panels;
    args.bias = args.up_bias = bias.data();
    args.alpha = 1.702f, args.limit = 7;
    args.scale = 0.375f;
  }
  kernels.linear(args, 0, panels.panels(), 0, rows);
  return y;
}

// Checks panels of each matrix with every loop: some at random, also with a nonlinearity, and the last, which may be
// partial.
std::vector<LinearComparison> compare_linears(LoadedModel& model, std::span<const KernelSet* const> sets) {
  const std::vector<const PackedMatrix*> matrices = matrices_of(model.target.config, model.target.weights);
  std::vector<std::atomic<int64_t>> compared(sets.size()), differing(sets.size());
  const auto compare = [&](const PanelTest& test, std::span<const int> row_counts) {
    const std::vector<float> expected = outputs_of(test, *sets[0], row_counts.back(), nullptr);
    for (size_t s = 1; s < sets.size(); ++s) {
      for (const int rows : row_counts) {
        const auto compare_loop = [&](const LinearLoop* loop) {
          const std::vector<float> got = outputs_of(test, *sets[s], rows, loop);
          int64_t different = 0;
          for (size_t i = 0; i < got.size(); ++i)
            different += std::bit_cast<uint32_t>(expected[i]) != std::bit_cast<uint32_t>(got[i]);
          compared[s] += static_cast<int64_t>(got.size());
          differing[s] += different;
        };
        compare_loop(nullptr);
        // Those that the tuner may choose.
        for (const LinearLoop& loop : loops_of(*sets[s], test.panels, linear_kind(test.panels, test.to, rows)))
          compare_loop(&loop);
      }
    }
  };
  model.runtime.team.for_tiles(static_cast<int>(matrices.size()), [&](int tile, int) {
    const PackedMatrix& matrix = *matrices[static_cast<size_t>(tile)];
    std::mt19937 random(static_cast<unsigned>(tile));
    std::normal_distribution<float> normal;
    std::vector<float> x(static_cast<size_t>(kMostRows) * static_cast<size_t>(matrix.cols));
    for (float& v : x) v = normal(random);
    const int last = std::max(0, matrix.panels() - kPanelsCompared);
    const PackedMatrix some = some_panels(matrix, static_cast<int>(random() % static_cast<unsigned>(last + 1)));
    const Nonlinearity nonlinearity = kNonlinearities[static_cast<size_t>(tile) % std::size(kNonlinearities)];
    for (const Activations to : kForms) {
      if (to == Activations::kInt8Row ? !takes_int8_rows(matrix) : activations_for(to, matrix.format) != to) continue;
      compare({some, to, x, Nonlinearity::kNone}, kRowCounts);
      compare({some_panels(matrix, last), to, x, Nonlinearity::kNone}, kRowCounts);
      compare({some, to, x, nonlinearity}, kGatedRows);
    }
  });
  std::vector<LinearComparison> all;
  for (size_t s = 1; s < sets.size(); ++s)
    all.push_back({std::string(sets[s]->name), static_cast<int64_t>(matrices.size()), compared[s], differing[s]});
  return all;
}

TokenIds prompt_of(const LoadedModel& model, size_t count) {
  TokenIds ids;
  if (model.target.text.tokenizer)
    ids = model.target.text.tokenizer->encode(kText, {.add_special = true, .parse_special = false});
  for (size_t i = ids.size(); i < count; ++i)
    ids.push_back(static_cast<TokenId>((i * 104729 + 17) % static_cast<size_t>(model.target.config.vocab)));
  ids.resize(count);
  return ids;
}

// Switches the model to another kernel set; the weights stay.
void use_kernels(LoadedModel& model, const KernelSet& kernels, Activations activations) {
  assert(!model.ranks);
  model.local.reset();  // its memory first
  model.runtime.device = std::make_unique<CpuBackend>(kernels, model.runtime.team);
  model.local = std::make_unique<LocalExecutor>(model.target.config, model.target.weights, model.cache,
                                                model.runtime.backend(), activations, model.plan.limits);
  model.info.kernels = kernels.name;
}

Expected run(LoadedModel& model, const TokenIds& prompt, int greedy_tokens) {
  Expected e{.name = "prompt", .prompt = prompt, .logits = {}, .greedy = {}, .margins = {}, .step_logits = {}};
  SingleSequence sequence(model);
  std::span<const float> logits = sequence.append(prompt, true);
  e.logits.assign(logits.begin(), logits.end());
  for (int step = 0; step < greedy_tokens; ++step) {
    e.greedy.push_back(argmax(logits.last(static_cast<size_t>(model.target.config.vocab))));
    if (step + 1 < greedy_tokens) logits = sequence.append({&e.greedy.back(), 1}, false);
  }
  return e;
}

}  // namespace

bool ModelComparison::passed() const {
  return logits.mean_kl <= kMostMeanKl && logits.greedy_equal == logits.greedy_compared;
}

bool KernelSetReport::passed() const {
  return std::all_of(linears.begin(), linears.end(), [](const auto& l) { return l.differing == 0; }) &&
         std::all_of(models.begin(), models.end(), [](const auto& m) { return m.passed(); });
}

KernelSetReport compare_kernel_sets(EngineOptions engine, const KernelSetOptions& options, Progress& progress) {
  const std::vector<const KernelSet*> sets = choose(options.sets);
  engine.max_num_seqs = 1;
  engine.max_num_batched_tokens = kMaxLogits;
  engine.max_model_len = options.prompt_tokens + options.greedy_tokens;
  progress.stage("loading " + engine.model);
  LoadedModel model(engine, kMaxLogits);
  progress.stage("comparing linear layers");
  KernelSetReport report{.model = model.info.name,
                         .activations = model.info.activations,
                         .kv_cache_dtype = model.info.kv_cache_dtype,
                         .baseline = std::string(sets[0]->name),
                         .linears = compare_linears(model, sets),
                         .models = {}};
  progress.stage("comparing the whole model");
  const Activations activations = model.plan.activation_type;
  const TokenIds prompt = prompt_of(model, static_cast<size_t>(options.prompt_tokens));
  use_kernels(model, *sets[0], activations);
  const Expected expected = run(model, prompt, options.greedy_tokens);
  for (size_t s = 1; s < sets.size(); ++s) {
    progress.step(s, sets.size(), "running " + std::string(sets[s]->name));
    use_kernels(model, *sets[s], activations);
    report.models.push_back(
        {std::string(sets[s]->name), Verifier(model, 0).compare(expected), static_cast<int>(expected.greedy.size())});
  }
  return report;
}

void print(const KernelSetReport& report) {
  std::printf("compared with %s: every loop of %jd matrices, and the whole model\n%s activations, %s KV cache\n\n",
              report.baseline.c_str(), static_cast<intmax_t>(report.linears.front().matrices),
              report.activations.c_str(), report.kv_cache_dtype.c_str());
  TextTable table({"kernel set", "outputs", "differ", "mean KL", "max KL", "max diff", "top-1", "greedy", "result"}, 1);
  for (size_t i = 0; i < report.linears.size(); ++i) {
    const LinearComparison& l = report.linears[i];
    const ModelComparison& m = report.models[i];
    const Comparison& c = m.logits;
    table.add(
        {l.kernels, fmt::format("{}", l.compared), fmt::format("{}", l.differing), fmt::format("{:.2g}", c.mean_kl),
         fmt::format("{:.2g}", c.max_kl), fmt::format("{:.2g}", c.max_difference), fmt::format("{:.4f}", c.top1),
         fmt::format("{}/{}", c.greedy_equal, c.greedy_compared), l.differing == 0 && m.passed() ? "ok" : "DIFFERS"});
  }
  std::printf("%s\n%s\n", table.text().c_str(), report.passed() ? "the kernel sets agree" : "THE KERNEL SETS DIFFER");
}

nlohmann::ordered_json to_json(const KernelSetReport& report) {
  nlohmann::ordered_json out = {{"model", report.model},
                                {"activations", report.activations},
                                {"kv_cache_dtype", report.kv_cache_dtype},
                                {"beside", report.baseline},
                                {"linears", nlohmann::ordered_json::array()},
                                {"models", nlohmann::ordered_json::array()},
                                {"passed", report.passed()}};
  for (const LinearComparison& l : report.linears) {
    out["linears"].push_back({{"kernels", l.kernels},
                              {"matrices", l.matrices},
                              {"outputs_compared", l.compared},
                              {"outputs_differing", l.differing},
                              {"equal", l.differing == 0}});
  }
  for (const ModelComparison& m : report.models) {
    const Comparison& c = m.logits;
    out["models"].push_back({{"kernels", m.kernels},
                             {"prompt_tokens", c.prompt_tokens},
                             {"max_abs_logit_difference", c.max_difference},
                             {"mean_kl", c.mean_kl},
                             {"max_kl", c.max_kl},
                             {"top1_agreement", c.top1},
                             {"greedy_compared", c.greedy_compared},
                             {"greedy_equal", c.greedy_equal},
                             {"greedy_steps", m.greedy_steps},
                             {"passed", m.passed()}});
  }
  return out;
}

}  // namespace quire
