#include "plan/step_probe.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <deque>
#include <numeric>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "base/cpu.h"
#include "base/error.h"
#include "engine/runtime.h"
#include "engine/tuner.h"
#include "model/decoder.h"
#include "ops/cache_memory.h"
#include "ops/cpu/cpu_backend.h"
#include "ops/cpu/tuning.h"
#include "plan/random_weights.h"

namespace quire {
namespace {

// Caches are rarely good for more than this, and a few layers must stay a few.
constexpr size_t kLeastStream = size_t{64} << 20, kMostStream = size_t{1} << 30;
constexpr int kMostProbeVocab = 1 << 16;
constexpr int kMostCopies = 4;

// Steps that are measured. The decoding ones of the table see one page; attention is measured at two depths.
constexpr std::array kDecodeRows{1, 2, 4, 8, 16, 24, 32, 64};
constexpr std::array kChunkRows{128, 256, 512};
constexpr int kDeepSequences = 8, kShallow = 240, kDeep = 2047, kDeepChunk = 256;
constexpr int kMostPositions = kDeep + kDeepChunk + 1;  // that the steps reach, whatever the model's context is
constexpr int kDeepPages = (kMostPositions + kPageTokens - 1) / kPageTokens;
// Short steps are repeated for so many seconds, so that their medians count something.
constexpr double kLeastProbed = 0.05;
constexpr double kMostProbed = 2;  // long ones are not repeated any more
constexpr int kMostRuns = 50;
constexpr int kStateSlots = kDecodeRows.back();

// Layers that look alike to a step: of one kind, window and size.
bool alike(const LayerSpec& a, const LayerSpec& b) {
  if (a.mixer.index() != b.mixer.index() || a.ffn.index() != b.ffn.index() || a.joined != b.joined) return false;
  const auto *x = std::get_if<Attention>(&a.mixer), *y = std::get_if<Attention>(&b.mixer);
  return !x || x->window == y->window;
}

// After how many layers their kinds repeat; all of them if they do not.
int period_of(const std::vector<LayerSpec>& layers) {
  const auto repeats = [&](size_t period) {
    for (size_t i = 0; i + period < layers.size(); ++i) {
      if (!alike(layers[i], layers[i + period])) return false;
    }
    return true;
  };
  size_t period = 1;
  while (period < layers.size() && !repeats(period)) ++period;
  return static_cast<int>(period);
}

bool shares_caches(const ModelConfig& config) {
  return std::ranges::any_of(config.layers, [](const LayerSpec& layer) {
    const auto* a = std::get_if<Attention>(&layer.mixer);
    return a && a->shares_cache >= 0;
  });
}

// Bytes that a decode step reads of the layers, and of the output matrix.
std::pair<double, double> stream_bytes(const ModelWork& work) {
  double layers = 0, head = 0;
  for (const LinearWork& linear : work.linears) (linear.of_logits ? head : layers) += linear.bytes;
  return {layers, head};
}

ModelConfig probe_config(const PlannedModel& model, const ProbeSize& size) {
  ModelConfig config = model.config;
  config.layers.resize(static_cast<size_t>(size.layers));
  config.vocab = size.vocab;
  config.max_positions = kMostPositions;
  for (LayerSpec& layer : config.layers) {
    if (auto* a = std::get_if<Attention>(&layer.mixer); a && a->scale == 0)
      a->scale = 1 / std::sqrt(static_cast<float>(a->key_dim));
  }
  return config;
}

// Seconds by operation; the last: outside all of them.
using OpSeconds = std::array<double, kStepOps + 1>;

OpSeconds medians(std::vector<OpSeconds>& runs) {
  OpSeconds median{};
  for (size_t op = 0; op < median.size(); ++op) {
    const auto middle = runs.begin() + static_cast<ptrdiff_t>((runs.size() - 1) / 2);
    std::nth_element(runs.begin(), middle, runs.end(),
                     [op](const OpSeconds& a, const OpSeconds& b) { return a[op] < b[op]; });
    median[op] = (*middle)[op];
  }
  return median;
}

}  // namespace

ProbeSize probe_size(const PlannedModel& model, size_t cache_bytes) {
  const auto layers = static_cast<int>(model.config.layers.size());
  ProbeSize size{.layers = layers, .copies = 1, .vocab = std::min(model.config.vocab, kMostProbeVocab)};
  const auto [of_layers, of_head] = stream_bytes(model.work);
  const double layer = of_layers / layers, head = of_head * size.vocab / model.config.vocab;
  const double wanted =
      std::min(of_layers + of_head, static_cast<double>(std::clamp(4 * cache_bytes, kLeastStream, kMostStream)));
  if (!shares_caches(model.config)) {
    const int period = period_of(model.config.layers);
    const int most = std::max(period, layers / 2 / period * period);
    const auto enough = static_cast<int>(std::ceil(std::max(0.0, wanted / 2 - head) / std::max(1.0, layer)));
    size.layers = std::clamp((std::max(2, enough) + period - 1) / period * period, period, most);
  }
  const double copy = layer * size.layers + head;
  size.copies = std::clamp(static_cast<int>(std::ceil(wanted / copy)), 1, kMostCopies);
  return size;
}

struct StepProbe::State {
  struct Copy {
    Model model;
    std::unique_ptr<Decoder> decoder;
  };

  State(const Compute& c, const PlannedModel& planned, KvType kv, const std::string& tuning_file, size_t memory)
      : full(planned.work),
        full_layers(static_cast<double>(planned.config.layers.size())),
        size(probe_size(planned, last_cache_bytes())),
        config(probe_config(planned, size)),
        cpu(c.kernels, c.team, &tuning),
        compute(cpu.compute(c.activations)),
        cache(cpu, {cache_layout(config, kv), units(config, kv), kStateSlots}) {
    if (planned.formats.empty()) throw unsupported("the kernels have no format for weights of this many bits");
    const auto format_of = [&](const Slot& slot) -> const PanelFormat& {
      const bool tied = slot.tensor == Tensor::kOutput && planned.config.tied_output;
      return planned.formats.at({tied ? Tensor::kEmbedding : slot.tensor, slot.layer});
    };
    check_memory(planned, memory);
    const DecoderLimits limits{
        .max_rows = kChunkRows.back(), .max_logits = kDecodeRows.back(), .max_positions = kMostPositions};
    for (int i = 0; i < size.copies; ++i) {
      Copy& copy =
          copies.emplace_back(Copy{{config, {}, random_weights(config, format_of, cpu, compute.team)}, nullptr});
      if (i == 0) tune_loops(copy.model, tuning_file);
      copy.decoder = std::make_unique<Decoder>(config, copy.model.weights, cache, cpu, compute.activations, limits);
    }
    work = model_work(config, copies[0].model.weights, compute.activations, kv);
    fill_cache();
  }

  static int units(const ModelConfig& c, KvType kv) {
    const auto groups = static_cast<int>(cache_layout(c, kv).groups().size());
    return std::max(1, groups * (kDeepSequences * kDeepPages + kDecodeRows.back()));
  }

  void check_memory(const PlannedModel& planned, size_t memory) const {
    const auto [layers, head] = stream_bytes(planned.work);
    const double needed =
        size.copies * (layers * size.layers / full_layers + 2 * head * size.vocab / planned.config.vocab) +
        static_cast<double>(cache.bytes());
    if (needed > static_cast<double>(memory))
      throw no_resource("measuring {} of the model's layers needs {:.0f} MiB of memory, but only {} MiB are available",
                        size.layers, needed / (1 << 20), memory >> 20);
  }

  void tune_loops(const Model& model, const std::string& file) {
    if (file.empty()) return;
    const TuningFile choices(file, tuning_machine(compute), [](const std::string& text) { spdlog::warn("{}", text); });
    tune(compute, tuning, model, choices, false, {});
  }

  // Memory that was never written is one page of zeros to the machine, which every read would find in a cache.
  void fill_cache() {
    // 0.01 in bf16 and float32, 1.06 in float16.
    const std::vector<std::byte> written(cache.layout().unit_bytes(), std::byte{0x3C});
    compute.team.for_tiles(cache.units(),
                           [&](int unit, int) { cache.write({.index = unit, .size = written.size()}, written); });
    const size_t groups = cache.layout().groups().size();
    int next = 0;
    for (int s = 0; s < kDecodeRows.back(); ++s) {
      for (auto& table : tables.emplace_back(groups)) {
        table.resize(static_cast<size_t>(s < kDeepSequences ? kDeepPages : 1));
        std::iota(table.begin(), table.end(), next);
        next += static_cast<int>(table.size());
      }
    }
  }

  // One step of spans of `rows` rows each, of sequences from `first`.
  OpSeconds step(int first, int sequences, int rows, int position, bool logits) {
    batch_rows.clear();
    batch_spans.clear();
    for (int s = 0; s < sequences; ++s) {
      const int sequence = (first + s) % kDecodeRows.back();
      batch_spans.push_back({.row = s * rows,
                             .rows = rows,
                             .position = position,
                             .tables = tables[static_cast<size_t>(sequence)],
                             .state = cache.layout().state_bytes() > 0 ? sequence : -1});
      for (int i = 0; i < rows; ++i) {
        const auto token = static_cast<TokenId>((turn * 7919u + static_cast<unsigned>(s * rows + i) * 104729u) %
                                                static_cast<unsigned>(config.vocab));
        batch_rows.push_back({token, position + i, logits && config.has_logits});
      }
    }
    Decoder& decoder = *copies[turn++ % copies.size()].decoder;
    StepProfile profile;
    decoder.profile(&profile);
    const auto begin = std::chrono::steady_clock::now();
    decoder.forward({batch_rows, batch_spans});
    const double all = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    decoder.profile(nullptr);
    OpSeconds seconds{};
    std::ranges::copy(profile.seconds, seconds.begin());
    seconds.back() = all - std::accumulate(profile.seconds.begin(), profile.seconds.end(), 0.0);
    return seconds;
  }

  // The same of a step of the whole model.
  OpSeconds whole(int runs, int sequences, int rows, int position, bool logits) {
    std::vector<OpSeconds> all;
    // Each run takes other sequences, whose pages are not in the caches any more.
    const int others = sequences < kDeepSequences ? kDeepSequences : 1;
    const auto sum = [](const OpSeconds& s) { return std::accumulate(s.begin(), s.end(), 0.0); };
    const OpSeconds first = step(0, sequences, rows, position, logits);  // cold
    double taken = sum(first);
    for (int run = 0; taken < kMostProbed && (run < runs || (taken < kLeastProbed && run < kMostRuns)); ++run) {
      all.push_back(step((run + 1) % others, sequences, rows, position, logits));
      taken += sum(all.back());
    }
    if (all.empty()) all.push_back(first);  // so long that the caches do not matter
    OpSeconds seconds = medians(all);
    const StepLoad load{.spans = {{sequences, rows, position}}, .logits = logits ? sequences * rows : 0};
    const auto mine = step_work(work, load), its = step_work(full, load);
    for (size_t op = 0; op < kStepOps; ++op) {
      if (static_cast<StepOp>(op) == StepOp::kEmbed) continue;
      // Weights are read in proportion to their bytes; what is not counted as work is so in each layer.
      const bool attends = static_cast<StepOp>(op) == StepOp::kAttention;
      const double done = attends ? mine[op].total_multiply_adds() : mine[op].bytes;
      const double wanted = attends ? its[op].total_multiply_adds() : its[op].bytes;
      seconds[op] *= done > 0 ? wanted / done : full_layers / size.layers;
    }
    return seconds;
  }

  StepTimes measure(int runs) {
    StepTimes times;
    times.work = full;
    const auto attention = static_cast<size_t>(StepOp::kAttention), head = static_cast<size_t>(StepOp::kHead);
    const auto add_knot = [&](int rows, const OpSeconds& s) {
      times.knots.push_back({rows, std::accumulate(s.begin(), s.end(), 0.0) - s[head], s[head]});
    };
    for (const int rows : kDecodeRows) add_knot(rows, whole(runs, rows, 1, 0, true));
    const StepTimes::Knot most_logits = times.knots.back();
    double chunk = 0;  // attention of the one that is also measured at depth
    for (const int rows : kChunkRows) {
      const OpSeconds s = whole((runs + 1) / 2, 1, rows, 0, false);
      if (rows == kDeepChunk) chunk = s[attention];
      add_knot(rows, s);
      times.knots.back().head = most_logits.head * rows / most_logits.rows;
    }
    const auto work_of = [&](const StepLoad& load) { return step_work(full, load)[attention]; };
    const auto slope = [](double from, double to, double amount) {
      return amount > 0 ? std::max(0.0, (to - from) / amount) : 0;  // noise may turn it around
    };
    const auto decode_slope = [&](int sequences) {
      return slope(whole(runs, sequences, 1, kShallow, false)[attention],
                   whole(runs, sequences, 1, kDeep, false)[attention],
                   work_of(decode_load(sequences, kDeep)).bytes - work_of(decode_load(sequences, kShallow)).bytes);
    };
    times.decode_one = decode_slope(1);
    times.decode_many = decode_slope(kDeepSequences);
    times.prefill = slope(chunk, whole((runs + 1) / 2, 1, kDeepChunk, kDeep, false)[attention],
                          work_of(prefill_load(kDeepChunk, kDeep, false)).total_multiply_adds() -
                              work_of(prefill_load(kDeepChunk, 0, false)).total_multiply_adds());
    return times;
  }

  const ModelWork full;
  const double full_layers;
  const ProbeSize size;
  const ModelConfig config;
  Tuning tuning;
  CpuBackend cpu;
  const Compute compute;
  CacheMemory cache;
  std::deque<Copy> copies;                                // decoders refer to them
  ModelWork work;                                         // of the few layers
  std::vector<std::vector<std::vector<int32_t>>> tables;  // of each sequence, by group of the cache layout
  std::vector<Row> batch_rows;
  std::vector<Span> batch_spans;
  unsigned turn = 0;
};

StepProbe::StepProbe(const Compute& compute, const PlannedModel& model, KvType kv, const std::string& tuning_file,
                     size_t memory)
    : state_(std::make_unique<State>(compute, model, kv, tuning_file, memory)) {}
StepProbe::~StepProbe() = default;

StepTimes StepProbe::measure(int runs) { return state_->measure(runs); }

}  // namespace quire
