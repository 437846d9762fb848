// The drafter that computes: a draft model, the target's first layers, or heads on its hidden states.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/runtime.h"
#include "engine/sequence.h"
#include "model/packing/output_rows.h"
#include "speculate/chains.h"
#include "speculate/eagle.h"
#include "speculate/medusa.h"

namespace quire {

// A sequence that wants drafts. The step's pages have room for them.
struct DraftTask {
  Sequence* sequence;
  int depth;  // most tokens; 0: none, but the drafter may look at the last step's
};

class DraftModel {
 public:
  // Hidden states of the target that the drafter reads.
  enum class Reads : uint8_t { kNothing, kSampledRows, kAllRows };

  // What the options name; null: they name no such drafter. Throws Error.
  static std::unique_ptr<DraftModel> load(const EngineOptions& options, const Model& target, Runtime& runtime);

  // The layers that follow the target's in the cache; nullptr: none.
  const ModelConfig* layers() const;
  Reads reads() const;
  std::string_view name() const;                             // one of kDrafters
  bool sequential() const { return !medusa_heads_; }         // a pass for each further token
  const std::string& identity() const { return identity_; }  // of what it keeps in the cache's pages
  // Of activations, for this target and the limits of its decoder.
  size_t activation_bytes(const ModelConfig& target, const DecoderLimits& limits, int threads) const;

  // Before the first draft(). All arguments must outlive it.
  void start(const ModelConfig& target, const Weights& weights, CacheMemory& cache, const Compute& compute,
             Decoder& decoder, const DecoderLimits& limits);
  // The target's step number `step` had these hidden states: `count` rows from `row` on, of the tokens from `position` on.
  static void keep_features(Sequence& s, uint64_t step, int row, int position, int count);
  // Sets the tasks' drafts. step: the target's last one. Each sequence takes part, if only with depth 0.
  void draft(std::span<const DraftTask> tasks, uint64_t step);

 private:
  enum class Kind : uint8_t { kModel, kFirstLayers, kEagle, kMedusa };
  explicit DraftModel(Kind kind) : kind_(kind) {}
  const Linear& output() const;
  std::span<const TokenId> output_ids() const {
    return subset_ ? std::span<const TokenId>(subset_->ids) : std::span<const TokenId>();
  }
  ChainRequest request(Sequence& s, int depth, uint64_t step);
  int first_to_compute(const Sequence& s) const;
  void catch_up(Sequence& s);
  void draft_by_heads(std::span<const DraftTask> tasks, uint64_t step);

  Kind kind_;
  std::string identity_;
  Model model_;  // of kModel
  std::unique_ptr<Decoder> decoder_;
  int first_layers_ = 0;
  std::optional<EagleHead> eagle_head_;
  std::optional<MedusaHeads> medusa_heads_;
  TokenIds frequent_;  // the drafter's vocabulary; empty: the target's
  std::optional<OutputRows> subset_;

  Decoder* target_ = nullptr;
  const Weights* target_weights_ = nullptr;
  int most_rows_ = 0;
  struct Window {
    int group, tokens;
  };
  std::vector<Window> windows_;  // of layers of the draft model
  std::unique_ptr<ChainModel> chain_;
  std::optional<Chains> chains_;
  std::optional<Medusa> medusa_;

  // Reused from step to step.
  std::vector<ChainRequest> requests_;
  std::vector<Sequence*> sequences_;
  std::vector<std::vector<DraftedToken>> drafted_;
  std::vector<DraftedToken> best_;
  std::vector<float> features_;
};

}  // namespace quire
