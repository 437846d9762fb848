#include "model/adapter/random_adapter.h"

#include <algorithm>
#include <cmath>
#include <list>
#include <vector>

#include "base/half.h"
#include "model/adapter/changeable.h"
#include "model/packing/pack_matrices.h"
#include "model/tensors.h"
#include "model/weights.h"
#include "ops/backend.h"

namespace quire {
namespace {

// splitmix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
uint64_t next_random(uint64_t& state) {
  uint64_t z = state += 0x9e3779b97f4a7c15;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
  z = (z ^ z >> 27) * 0x94d049bb133111eb;
  return z ^ z >> 31;
}

struct RandomVisitor : TensorVisitor {
  RandomVisitor(const ModelConfig& c, std::span<const Tensor> t, int r, uint64_t seed, bool f, Adapter& a)
      : config(c), changed(t), rank(r), state(seed), folds(f), adapter(a) {}

  void matrix(const Slot& slot, int rows, int cols, Linear& linear) override {
    if (!is_changeable(config, slot)) return;
    if (!changed.empty() && std::ranges::find(changed, slot.tensor) == changed.end()) return;
    LowRank& change = adapter.changes[&linear];  // references to a map's values stay valid
    add(change.down.weight, rank, cols);
    // A folded matrix has numbers everywhere: what the inputs are zero for counts for nothing.
    change.folds = folds ? low_rank_folds(rows, rank) : 1;
    add(change.up.weight, rows / change.folds, change.folds > 1 ? kBlockInputs : rank);
  }
  void vector(const Slot&, const std::vector<int>&, Vector&, Change) override {}
  void bias(const Slot&, int, Vector&) override {}

  // With numbers of this size, each product has about the size of its inputs; two of them change results by a hundredth.
  void add(PackedMatrix& matrix, int rows, int cols) {
    const float size = 0.1f / std::sqrt(static_cast<float>(cols));
    std::vector<uint16_t>& values = numbers.emplace_back(static_cast<size_t>(rows) * static_cast<size_t>(cols));
    for (uint16_t& value : values)
      value = f32_to_bf16(size * (static_cast<float>(next_random(state) >> 40) * 0x1p-23f - 1));
    matrix = describe_packed(TensorType::BF16, rows, cols);
    jobs.push_back({&matrix,
                    {.source = {.name = "random"},
                     .file_rows = rows,
                     .type = TensorType::BF16,
                     .bytes = std::as_bytes(std::span(values)),
                     .coded = nullptr},
                    bytes});
    bytes += matrix.bytes();
  }

  const ModelConfig& config;
  const std::span<const Tensor> changed;
  const int rank;
  uint64_t state;
  const bool folds;
  Adapter& adapter;
  std::list<std::vector<uint16_t>> numbers;
  std::vector<MatrixJob> jobs;
  size_t bytes = 0;
};

}  // namespace

Adapter random_adapter(const ModelConfig& config, const Weights& weights, std::span<const Tensor> changed, int rank,
                       uint64_t seed, Backend& backend, Team& team) {
  Adapter adapter;
  adapter.rank = rank;
  RandomVisitor visitor(config, changed, rank, seed, backend.folds_low_rank(), adapter);
  visit_tensors(config, const_cast<Weights&>(weights), visitor);  // only looks at them
  adapter.memory = BackendMemory(backend, visitor.bytes);
  pack_matrices(visitor.jobs, backend, adapter.memory.data(), "random adapter", {}, team, {});
  return adapter;
}

}  // namespace quire
