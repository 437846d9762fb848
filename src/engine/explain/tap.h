// Operations that copy numbers on their way through the decoder.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/explain/explanation.h"
#include "model/config.h"
#include "model/weights.h"
#include "ops/forwarding.h"

namespace quire {

// Operations of a decoder that computes one prompt, at position 0, in one batch. What they copy goes to an Explanation. The
// numbers that the decoder gets keep their bits: all that is computed besides goes to memory of the tap. Which layer
// computes, the tap sees by the weights that operations name.
class TapOperations final : public ForwardingOperations {
 public:
  // The references must outlive it. `to` has its layer and head. tokens: of the prompt.
  TapOperations(std::unique_ptr<Operations> inner, Backend& backend, const ModelConfig& config, const Weights& weights,
                int tokens, Explanation& to);
  // What the constructor allocates in the backend's memory.
  static size_t memory_bytes(const ModelConfig& config);

  using Operations::project;

  void embed(const PackedMatrix& matrix, std::span<const int32_t> ids, float scale, const Rows& x) override;
  void gather(const Rows& x, std::span<const int32_t> rows, const Rows& to) override;
  Inputs prepare(const Rows& x, const NormView& norm, int rows, std::initializer_list<const Linear*> linears,
                 std::optional<Activations> as) override;
  void project(const Inputs& x, std::span<const Projection> list, int rows) override;
  void position_and_store(const PositionArgs& args, std::span<const AttentionSpan> spans, int rows) override;
  void attend(const AttentionSpec& spec, std::span<const AttentionSpan> spans) override;

 private:
  static int scratch_cols(const ModelConfig& config);
  // Finishes, and copies columns [first, first + count) of a row; count -1: all.
  std::vector<float> numbers(const Rows& x, int row, int first = 0, int count = -1);
  void put(std::string_view place, std::vector<float> values);
  std::vector<float> normed(const Rows& x, const NormView& norm, int row);
  void begin_layer(int layer, const Rows& x, const NormView& norm, int rows);
  void keep_keys(const PositionArgs& args, std::span<const AttentionSpan> spans, int rows);
  void score(const AttentionSpec& spec);

  Backend& backend_;
  const Weights& weights_;
  const LayerWeights& layer_weights_;
  const bool is_parallel_;
  const int tokens_;
  int cached_ = -1;  // the layer whose keys and values the shown one reads; -1: none
  int key_dim_ = 0, value_dim_ = 0;
  Explanation& to_;
  std::unordered_map<const Linear*, int> begins_;  // the first linear of each layer's mixer
  int layer_ = -1;                                 // that computes
  const float* residual_ = nullptr;                // address of the residual stream
  std::vector<float> query_;
  BackendMemory memory_;
  Rows scratch_;  // [ExplainRequest::kMostTokens, the widest of what goes there]
};

// A backend whose operations are TapOperations.
class TapBackend final : public ForwardingBackend {
 public:
  TapBackend(Backend& inner, const ModelConfig& config, const Weights& weights, int tokens, Explanation& to)
      : ForwardingBackend(inner), config_(config), weights_(weights), tokens_(tokens), to_(to) {}

  std::unique_ptr<Operations> operations(Activations activations, const OperationLimits& limits) override {
    return std::make_unique<TapOperations>(inner().operations(activations, limits), inner(), config_, weights_, tokens_,
                                           to_);
  }

 private:
  const ModelConfig& config_;
  const Weights& weights_;
  const int tokens_;
  Explanation& to_;
};

}  // namespace quire
