// What CUDA kernels do for the steps of a model of Llama's 8B shape, counted on the emulated device:
//
//   kernel_counts FILE [CAPABILITY]
//
// Appends to FILE, for scripts/kernel_resources.py (cuda/emulated/counts_file.h). CAPABILITY: 80, 89, 90 (the default, which takes about
// 10 minutes) or 100. For all but 90 it only launches attention, whose shared memory depends on the GPU. Weights, keys and values
// are zeros, because no kernel's work depends on them.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/tensor_type.h"
#include "bench/device_bench.h"
#include "cuda/cuda_backend.h"
#include "cuda/emulated/counts_file.h"
#include "cuda/emulated/device.h"

namespace quire {
namespace {

constexpr int kHidden = 4096, kInner = 14336, kHeads = 32, kKvHeads = 8, kHeadDim = 128, kVocabulary = 128256;

struct Heads {
  int count = kHeads, kv_count = kKvHeads, dim = kHeadDim;
};

// GPUs as launches see them: an A100, an L40S, an H100 and a B200.
constexpr std::array<cuda::EmulatedOptions, 4> kGpus{{
    {.major = 8, .minor = 0, .processors = 108, .shared_bytes = 163 << 10},
    {.major = 8, .minor = 9, .processors = 142, .shared_bytes = 99 << 10},
    {.major = 9, .minor = 0, .processors = 132, .shared_bytes = 227 << 10},
    {.major = 10, .minor = 0, .processors = 148, .shared_bytes = 227 << 10},
}};

std::string count_of(int n, const char* what) { return std::to_string(n) + ' ' + what + (n == 1 ? "" : "s"); }

class Counting {
 public:
  Counting(std::string file, const cuda::EmulatedOptions& gpu) : Counting(std::move(file), device_of(gpu)) {}

  // The linears of a layer, with what prepares their inputs. nullopt: W8A8.
  void linears(std::optional<TensorType> type, int rows) {
    OperationLimits limits = limits_of(rows);
    limits.inputs = {{rows, kHidden}, {rows, kInner}};
    limits.forms.int8_rows = !type;
    const auto operations = backend_.operations(type ? Activations::kBf16 : Activations::kInt8, limits);
    const Memory x(*this, rows, kHidden), heads(*this, rows, (kHeads + 2 * kKvHeads) * kHeadDim),
        inner(*this, rows, kInner);
    const Matrix q(*this, type, kHidden, kHidden), k(*this, type, kKvHeads * kHeadDim, kHidden),
        v(*this, type, kKvHeads * kHeadDim, kHidden), out(*this, type, kHidden, kHidden),
        gate(*this, type, kInner, kHidden), up(*this, type, kInner, kHidden), down(*this, type, kHidden, kInner);
    const BackendMemory weight(backend_, kHidden * sizeof(float));
    const NormView norm{
        .kind = NormKind::kRms, .epsilon = 1e-5f, .weight = reinterpret_cast<const float*>(weight.data())};
    const auto run = [&](const Rows& from, const NormView& with, std::span<const Projection> list) {
      operations->project(operations->prepare(from, with, rows, {list[0].w}), list, rows);
    };
    device_.reset_counters();
    const int kv = kKvHeads * kHeadDim;
    run(x.rows(), norm,
        std::array<Projection, 3>{{{.w = &q.linear, .y = heads.rows().columns(0, kHidden)},
                                   {.w = &k.linear, .y = heads.rows().columns(kHidden, kv)},
                                   {.w = &v.linear, .y = heads.rows().columns(kHidden + kv, kv)}}});
    run(heads.rows().columns(0, kHidden), {},
        std::array<Projection, 1>{{{.w = &out.linear, .y = x.rows(), .accumulate = true}}});
    run(x.rows(), norm,
        std::array<Projection, 1>{
            {{.w = &gate.linear, .y = inner.rows(), .up = &up.linear, .f = Nonlinearity::kSilu}}});
    run(inner.rows(), {}, std::array<Projection, 1>{{{.w = &down.linear, .y = x.rows(), .accumulate = true}}});
    finish(*operations, name_of(type) + " linears of a layer, " + count_of(rows, "row"));
  }

  // One of them alone, for rows of a prompt: as many multiply-adds as the emulated device does in a minute.
  void output_linear(std::optional<TensorType> type, int rows) {
    OperationLimits limits = limits_of(rows);
    limits.inputs = {{rows, kHidden}};
    limits.forms.int8_rows = !type;
    const auto operations = backend_.operations(type ? Activations::kBf16 : Activations::kInt8, limits);
    const Memory x(*this, rows, kHidden), y(*this, rows, kHidden);
    const Matrix out(*this, type, kHidden, kHidden);
    device_.reset_counters();
    operations->project(operations->prepare(x.rows(), {}, rows, {&out.linear}), {.w = &out.linear, .y = y.rows()},
                        rows);
    finish(*operations, name_of(type) + " output linear, " + count_of(rows, "row"));
  }

  // The last `rows` tokens of each sequence: first their keys and values are stored, then they attend.
  void attention(const Heads& heads, KvType type, int sequences, int tokens, int rows, std::string_view work) {
    const int all = sequences * rows, pages = (tokens + kPageTokens - 1) / kPageTokens;
    OperationLimits limits = limits_of(all);
    limits.max_positions = tokens;
    limits.attention = {{.heads = heads.count, .kv_heads = heads.kv_count, .value_dim = heads.dim}};
    const auto operations = backend_.operations(Activations::kBf16, limits);
    const CacheMemory cache(backend_, {CacheLayout(type, {{.kind = LayerCache::Kind::kKeysValues,
                                                           .kv_heads = heads.kv_count,
                                                           .key_dim = heads.dim,
                                                           .value_dim = heads.dim}}),
                                       sequences * pages});
    const int q = heads.count * heads.dim, kv = heads.kv_count * heads.dim;
    const Memory x(*this, all, q + 2 * kv), out(*this, all, q), cos_sin(*this, all, heads.dim);
    std::vector<int32_t> table(static_cast<size_t>(sequences * pages));
    std::iota(table.begin(), table.end(), 0);
    std::vector<AttentionSpan> spans;
    for (int i = 0; i < sequences; ++i)
      spans.push_back(
          {.pages = &table[static_cast<size_t>(i * pages)], .row = i * rows, .rows = rows, .position = tokens - rows});
    device_.reset_counters();
    operations->position_and_store({.q = x.rows().columns(0, q),
                                    .k = x.rows().columns(q, kv),
                                    .v = x.rows().columns(q + kv, kv),
                                    .heads = heads.count,
                                    .key_dim = heads.dim,
                                    .value_dim = heads.dim,
                                    .kind = RopeKind::kHalves,
                                    .rope_dim = heads.dim,
                                    .cos_sin = cos_sin.rows(),
                                    .cache = cache,
                                    .layer = 0},
                                   spans, all);
    operations->attend({.q = x.rows().columns(0, q),
                        .out = out.rows(),
                        .cache = cache,
                        .layer = 0,
                        .heads = heads.count,
                        .scale = 0.088f},
                       spans);
    finish(*operations, work);
  }

  void normalize(int rows) {
    const auto operations = backend_.operations(Activations::kBf16, limits_of(rows));
    const Memory x(*this, rows, kHidden), y(*this, rows, kHidden);
    device_.reset_counters();
    operations->normalize(x.rows(), NormView{.kind = NormKind::kRms, .epsilon = 1e-5f}, {y.rows()}, rows);
    finish(*operations, "norm, " + count_of(rows, "row"));
  }

  // Rows of logits.
  void pick(int rows, const Pick& one, const std::string& what) {
    OperationLimits limits = limits_of(rows);
    limits.max_picked = rows;
    const auto operations = backend_.operations(Activations::kBf16, limits);
    const Memory logits(*this, rows, kVocabulary);
    backend_.write(logits.memory.data(), logits.memory.size(), [](std::span<std::byte> host) {
      std::mt19937 random(1);
      std::normal_distribution<float> normal;
      for (float& x : std::span(reinterpret_cast<float*>(host.data()), host.size() / sizeof(float))) x = normal(random);
    });
    device_.reset_counters();
    const std::vector<Pick> picks(static_cast<size_t>(rows), one);
    operations->pick(logits.rows(), picks);
    finish(*operations, what + " of " + std::to_string(kVocabulary) + " logits, " + count_of(rows, "row"));
  }

 private:
  struct Memory {
    BackendMemory memory;
    int cols;
    Memory(Counting& counting, int rows, int cols)
        : memory(counting.backend_, static_cast<size_t>(rows) * row_stride(cols) * sizeof(float)), cols(cols) {}
    Rows rows() const { return {reinterpret_cast<float*>(memory.data()), cols, row_stride(cols)}; }
  };
  struct Matrix {
    Linear linear;
    BackendMemory memory;
    Matrix(Counting& counting, std::optional<TensorType> type, int outputs, int inputs) {
      const PanelFormat whole_rows{.codes = Codes::kI8, .scale = ScaleKind::kF32, .group = inputs};
      linear.weight = type ? describe_packed(*type, outputs, inputs) : describe_packed(whole_rows, 1, outputs, inputs);
      linear.int8_rows = !type;
      memory = BackendMemory(counting.backend_, linear.weight.bytes());
      linear.weight.data = memory.data();
    }
  };

  static std::unique_ptr<cuda::EmulatedDevice> device_of(cuda::EmulatedOptions options) {
    options.memory = size_t{4} << 30;
    return std::make_unique<cuda::EmulatedDevice>(options);
  }
  Counting(std::string file, std::unique_ptr<cuda::EmulatedDevice> device)
      : file_(std::move(file)), device_(*device), backend_(std::move(device), false) {}

  static std::string name_of(std::optional<TensorType> type) { return type ? std::string(name(*type)) : "W8A8"; }
  static OperationLimits limits_of(int rows) {
    OperationLimits limits;
    limits.max_rows = rows;
    limits.max_positions = rows;
    return limits;
  }
  void finish(Operations& operations, std::string_view work) {
    operations.finish();
    cuda::append_counts(file_, work, device_.facts(), device_.counters_by_entry());
    std::printf("%.*s\n", static_cast<int>(work.size()), work.data());
    std::fflush(stdout);
  }

  const std::string file_;
  cuda::EmulatedDevice& device_;  // the backend's
  cuda::CudaBackend backend_;
};

void count_steps(Counting& counting) {
  for (const std::optional<TensorType> type : {std::optional(TensorType::BF16), std::optional(TensorType::Q4_0),
                                               std::optional(TensorType::Q4_K), std::optional<TensorType>()}) {
    for (const int rows : {1, 64}) counting.linears(type, rows);
    counting.output_linear(type, 512);
  }
  struct Case {
    KvType type;
    const char* name;
    int sequences, tokens, rows;
  };
  for (const Case& c : {Case{KvType::kBf16, "bf16", 1, 32768, 1},
                        {KvType::kInt8, "int8", 1, 32768, 1},
                        {KvType::kBf16, "bf16", 16, 4096, 1},
                        {KvType::kBf16, "bf16", 1, 4096, 256},
                        {KvType::kInt8, "int8", 1, 4096, 256}}) {
    counting.attention({}, c.type, c.sequences, c.tokens, c.rows,
                       std::string(c.name) + " cache, " + count_of(c.sequences, "sequence") + " of " +
                           std::to_string(c.tokens) + " tokens, " + count_of(c.rows, "row") + " each");
  }
  for (const int rows : {1, 64}) counting.normalize(rows);
  counting.pick(64, {.best = 1}, "the best 1");
  counting.pick(64, {.best = 40}, "the best 40");
  counting.pick(64, {.best = 1, .draw = {{.temperature = 1, .uniform = 0.5}}}, "a draw");
  counting.pick(64, {.best = Pick::kMostBest, .draw = {{.temperature = 0.1f, .uniform = 0.5, .top_p = 0.9f}}},
                "a draw with top_p");
}

int run(std::span<char* const> args) {
  const int capability = args.size() > 2 ? std::atoi(args[2]) : 90;
  const auto gpu = std::ranges::find_if(kGpus, [&](const auto& g) { return 10 * g.major + g.minor == capability; });
  if (args.size() < 2 || args.size() > 3 || gpu == kGpus.end()) {
    std::fprintf(stderr, "usage: %s FILE [80 | 89 | 90 | 100]\n", args[0]);
    return 2;
  }
  Counting counting(args[1], *gpu);
  if (capability == 90) count_steps(counting);
  // How attention is launched for other heads: 2 or 16 queries for each key.
  for (const KvType type : {KvType::kBf16, KvType::kF32, KvType::kInt8, KvType::kInt4}) {
    for (const int dim : {64, 128, 192, 256, 512}) {
      if (type == KvType::kInt4 && dim == 512) continue;  // no room for it on all of them
      for (const int group : {2, 16}) {
        for (const int rows : {1, 40}) counting.attention({group, 1, dim}, type, 1, 40, rows, "all");
      }
    }
  }
  return 0;
}

}  // namespace
}  // namespace quire

int main(int count, char** arguments) { return quire::run_bench(count, arguments, quire::run); }
