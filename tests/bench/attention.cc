// The speed of attention on a device, without a model:
//
//   bench_attention [DEVICE [HEADS KV_HEADS HEAD_DIM [KV_TYPE]]]
//
// DEVICE: as for --device (cuda); KV_TYPE: bf16, int8, fp8, int4, f16, f32. Prints the time of one layer's attention, the bytes of keys and
// values that it reads per second, and its products of queries, keys, weights and values per second. Then compares rows that were computed one
// by one with the same rows as a part of a prompt, bit for bit.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/team.h"
#include "bench/device_bench.h"
#include "engine/device.h"
#include "ops/backend.h"
#include "ops/cpu/cpu_backend.h"

namespace quire {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMostRows = 2048;
constexpr int kLayers = 4;  // in turns, so that a small cache does not stay in the device's own cache

struct Heads {
  int heads = 32, kv_heads = 8, dim = 128;
};

KvType kv_type_of(std::string_view name) {
  constexpr std::string_view kNames[] = {"f32", "bf16", "f16", "int8", "int4", "fp8"};
  for (size_t i = 0; i < std::size(kNames); ++i) {
    if (kNames[i] == name) return static_cast<KvType>(i);
  }
  throw invalid("{} is not a type of keys and values; use f32, bf16, f16, int8, int4 or fp8", name);
}

class Bench {
 public:
  Bench(Backend& backend, const Heads& heads, KvType type, int sequences, int tokens)
      : backend_(backend),
        heads_(heads),
        sequences_(sequences),
        tokens_(tokens),
        cache_(backend, {CacheLayout(type, std::vector<LayerCache>(kLayers, {.kind = LayerCache::Kind::kKeysValues,
                                                                             .kv_heads = heads.kv_heads,
                                                                             .key_dim = heads.dim,
                                                                             .value_dim = heads.dim})),
                         sequences * pages_of(tokens)}),
        rows_(backend, kMostRows * row_stride((heads.heads + 2 * heads.kv_heads) * heads.dim) * sizeof(float)),
        out_(backend, kMostRows * row_stride(heads.heads * heads.dim) * sizeof(float)) {
    OperationLimits limits;
    limits.max_rows = kMostRows;
    limits.max_positions = tokens;
    limits.attention = {{.heads = heads.heads, .kv_heads = heads.kv_heads, .value_dim = heads.dim}};
    operations_ = backend.operations(Activations::kF32, limits);
    backend.write(rows_.data(), rows_.size(), [](std::span<std::byte> host) {
      std::mt19937 random(1);
      std::normal_distribution<float> normal;
      for (float& x : std::span(reinterpret_cast<float*>(host.data()), host.size() / sizeof(float))) x = normal(random);
    });
    pages_.resize(static_cast<size_t>(sequences * pages_of(tokens)));
    std::iota(pages_.begin(), pages_.end(), 0);
    std::shuffle(pages_.begin(), pages_.end(), std::mt19937(2));
    for (int layer = 0; layer < kLayers; ++layer) {
      for (int sequence = 0; sequence < sequences; ++sequence) {
        for (int position = 0; position < tokens; position += kMostRows) {
          const AttentionSpan span{table(sequence), 0, std::min(kMostRows, tokens - position), position};
          operations_->position_and_store({.q = q(),
                                           .k = columns(heads_.heads, heads_.kv_heads),
                                           .v = columns(heads_.heads + heads_.kv_heads, heads_.kv_heads),
                                           .heads = heads_.heads,
                                           .key_dim = heads_.dim,
                                           .value_dim = heads_.dim,
                                           .cache = cache_,
                                           .layer = layer},
                                          {&span, 1}, span.rows);
          operations_->finish();
        }
      }
    }
  }

  // The last `rows` rows of each sequence.
  void attend(int rows, int layer) {
    std::vector<AttentionSpan> spans;
    for (int i = 0; i < sequences_; ++i) spans.push_back({table(i), i * rows, rows, tokens_ - rows});
    attend(spans, layer);
  }
  void attend(std::span<const AttentionSpan> spans, int layer) {
    operations_->attend(
        {.q = q(), .out = out(), .cache = cache_, .layer = layer, .heads = heads_.heads, .scale = 0.088f}, spans);
  }

  void measure(int rows) {
    constexpr int kCalls = 8, kSteps = 6;
    double best = 1e9;
    for (int step = 0; step < kSteps; ++step) {
      const auto begin = Clock::now();
      for (int call = 0; call < kCalls; ++call) attend(rows, call % kLayers);
      operations_->finish();
      best = std::min(best, std::chrono::duration<double>(Clock::now() - begin).count() / kCalls);
    }
    const double all = sequences_, seen = tokens_ - (rows - 1) / 2.0;
    const double bytes = all * tokens_ * static_cast<double>(cache_.layout().unit_bytes()) / kLayers / kPageTokens;
    const double products = all * rows * seen * heads_.heads * heads_.dim * 2;
    std::printf("%4d sequences of %6d tokens, %5d rows each: %9.1f us %8.1f GB/s %8.1f Tflop/s\n", sequences_, tokens_,
                rows, best * 1e6, bytes / best * 1e-9, 2 * products / best * 1e-12);
  }

  // Whether rows have the same bits alone and in a prompt.
  bool same_alone(int rows) {
    const AttentionSpan all{table(0), 0, rows, tokens_ - rows};
    HostCopy copies[2];
    attend({&all, 1}, 0);
    operations_->finish();
    const auto together = backend_.view(out_.data(), out_.size(), copies[0]);
    const std::vector<std::byte> wanted(together.begin(), together.end());
    for (int row = 0; row < rows; row += 7) {
      const AttentionSpan one{table(0), row, 1, tokens_ - rows + row};
      attend({&one, 1}, 0);
    }
    operations_->finish();
    const auto alone = backend_.view(out_.data(), out_.size(), copies[1]);
    return std::memcmp(alone.data(), wanted.data(), wanted.size()) == 0;
  }

 private:
  static int pages_of(int tokens) { return (tokens + kPageTokens - 1) / kPageTokens; }
  const int32_t* table(int sequence) const { return &pages_[static_cast<size_t>(sequence * pages_of(tokens_))]; }
  Rows all() const {
    const int cols = (heads_.heads + 2 * heads_.kv_heads) * heads_.dim;
    return {reinterpret_cast<float*>(rows_.data()), cols, row_stride(cols)};
  }
  Rows columns(int head, int count) const { return all().columns(head * heads_.dim, count * heads_.dim); }
  Rows q() const { return columns(0, heads_.heads); }
  Rows out() const {
    const int cols = heads_.heads * heads_.dim;
    return {reinterpret_cast<float*>(out_.data()), cols, row_stride(cols)};
  }

  Backend& backend_;
  Heads heads_;
  int sequences_, tokens_;
  CacheMemory cache_;
  BackendMemory rows_, out_;
  std::unique_ptr<Operations> operations_;
  std::vector<int32_t> pages_;
};

int run(std::span<char* const> args) {
  Heads heads;
  if (args.size() > 4) heads = {std::atoi(args[2]), std::atoi(args[3]), std::atoi(args[4])};
  const KvType type = kv_type_of(args.size() > 5 ? args[5] : "bf16");
  Team team(1);
  CpuBackend cpu("auto", team);
  const std::string_view name = args.size() > 1 ? args[1] : "cuda";
  const std::unique_ptr<Backend> device = open_device(name, cpu);
  Backend& backend = device ? *device : static_cast<Backend&>(cpu);
  // On a processor, to see that this program works.
  const int longest = device ? 32768 : 1024, largest = device ? 2048 : 64;
  for (const int tokens : {longest / 32, longest / 4, longest}) Bench(backend, heads, type, 1, tokens).measure(1);
  Bench(backend, heads, type, 16, longest / 8).measure(1);
  Bench(backend, heads, type, 4, longest / 2).measure(4);
  {
    Bench prompt(backend, heads, type, 1, longest / 2);
    for (const int rows : {largest / 8, largest}) prompt.measure(rows);
    Bench start(backend, heads, type, 1, largest);
    start.measure(largest);
  }
  Bench bits(backend, heads, type, 1, longest / 16);
  const bool same = bits.same_alone(largest / 4);
  std::printf("rows alone and in a prompt have %s bits\n", same ? "the same" : "DIFFERENT");
  return same ? 0 : 1;
}

}  // namespace
}  // namespace quire

int main(int count, char** arguments) { return quire::run_bench(count, arguments, quire::run); }
