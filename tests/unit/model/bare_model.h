// A model with its decoder and nothing else: for tests below the engine.
#pragma once

#include <filesystem>
#include <limits>
#include <span>
#include <vector>

#include "kernels/kernels.h"
#include "model/decoder.h"
#include "model/families.h"
#include "ops/cpu/cpu_backend.h"

namespace quire::testing {

struct BareModel {
  explicit BareModel(const std::filesystem::path& path, Activations activations = Activations::kF32,
                     std::string_view kernels = "auto")
      : checkpoint(Checkpoint::open(path)),
        config(read_model_config(checkpoint)),
        backend(choose_kernels(kernels), team),
        weights(load_weights(checkpoint, config, backend, team, {.memory = std::numeric_limits<size_t>::max()})),
        activations(activations) {}

  Checkpoint checkpoint;
  ModelConfig config;
  Team team{2};
  CpuBackend backend;
  Weights weights;
  Activations activations;
};

// A cache in which each of some sequences has pages and a state of its own.
struct BareCache {
  BareCache(Backend& backend, const CacheLayout& layout, int sequences, int tokens)
      : memory(backend, {layout, sequences * units_of(layout, tokens), layout.state_bytes() > 0 ? sequences : 0}) {
    const int groups = static_cast<int>(layout.groups().size()), pages = (tokens + kPageTokens - 1) / kPageTokens;
    for (int s = 0; s < sequences; ++s) {
      auto& tables = tables_of.emplace_back();
      for (int g = 0; g < groups; ++g) {
        auto& table = tables.emplace_back();
        for (int p = 0; p < pages; ++p) table.push_back((s * groups + g) * pages + p);
      }
    }
  }
  static int units_of(const CacheLayout& layout, int tokens) {
    return static_cast<int>(layout.groups().size()) * ((tokens + kPageTokens - 1) / kPageTokens);
  }

  CacheMemory memory;
  std::vector<std::vector<std::vector<int32_t>>> tables_of;  // sequence, group
};

// The rows of a step, sequence by sequence.
class BareBatch {
 public:
  explicit BareBatch(const BareCache& cache) : cache_(cache) {}

  // logits, hidden: of the last so many rows.
  BareBatch& add(int sequence, int position, std::span<const TokenId> tokens, int logits = 0, int hidden = 0) {
    const int count = static_cast<int>(tokens.size());
    spans_.push_back({.row = static_cast<int>(rows_.size()),
                      .rows = count,
                      .position = position,
                      .tables = cache_.tables_of[static_cast<size_t>(sequence)],
                      .state = cache_.memory.states() > 0 ? sequence : -1});
    for (int i = 0; i < count; ++i) {
      rows_.push_back({.token = tokens[static_cast<size_t>(i)],
                       .position = position + i,
                       .wants_logits = i >= count - logits,
                       .wants_hidden = i >= count - hidden});
    }
    return *this;
  }
  operator Batch() const { return {rows_, spans_}; }  // NOLINT: tests pass it as one

 private:
  const BareCache& cache_;
  std::vector<Row> rows_;
  std::vector<Span> spans_;
};

inline std::vector<float> copied(std::span<const float> x) { return {x.begin(), x.end()}; }
// The first `rows` rows without the gaps between them.
inline std::vector<float> copied(const Rows& x, int rows) {
  std::vector<float> all;
  for (int r = 0; r < rows; ++r) all.insert(all.end(), x.row(r), x.row(r) + x.cols);
  return all;
}
// Ids that do not repeat soon.
inline TokenIds some_tokens(int count, int vocab, int seed = 0) {
  TokenIds tokens;
  for (int i = 0; i < count; ++i) tokens.push_back((seed * 31 + 7 + i * 53) % vocab);
  return tokens;
}

// The logits of some tokens, as a model computes them.
inline std::vector<float> logits_of(const std::filesystem::path& path) {
  BareModel m(path);
  BareCache cache(m.backend, cache_layout(m.config, KvType::kF32), 1, 32);
  Decoder decoder(m.config, m.weights, cache.memory, m.backend, m.activations,
                  {.max_rows = 32, .max_logits = 32, .max_positions = 64, .max_hidden = 32});
  const TokenIds tokens = some_tokens(12, m.config.vocab);
  return copied(decoder.forward(BareBatch(cache).add(0, 0, tokens, 12)));
}

}  // namespace quire::testing
