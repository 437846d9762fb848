// Drafters that draft token after token: a small model, the target's first layers, a layer that predicts hidden states.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/drafting/draft_model.h"
#include "speculate/network/chains.h"
#include "speculate/network/feature_predictor.h"

namespace quire {

class ChainDrafter : public DraftModel {
 public:
  void draft(std::span<const DraftTask> tasks, uint64_t step, DraftPicker& picker) override;

 protected:
  explicit ChainDrafter(DraftOutput output) : output_(std::move(output)) {}
  void start(DraftNetwork& passes, const CacheLayout& layout, const DecoderLimits& limits) override;
  // The rows to compute, and where; without tokens the sequence takes no part. depth: of the task. most_rows: of this
  // request.
  virtual ChainRequest request(Sequence& s, int depth, uint64_t step, int most_rows) = 0;

  int most_rows_ = 0;  // the most rows of a pass
  DraftOutput output_;
  std::optional<Chains> chains_;

 private:
  // Reused from step to step.
  std::vector<ChainRequest> requests_;
  std::vector<Sequence*> sequences_;
  std::vector<TokenIds> drafted_;
};

// Its layers follow the target's in the cache.
class SmallModelDrafter : public ChainDrafter {
 public:
  SmallModelDrafter(Model model, std::string identity, DraftOutput output);
  DrafterKind kind() const override { return DrafterKind::kDraft; }
  std::string identity() const override { return identity_; }
  std::unique_ptr<DraftNetwork> make_network(const DraftTarget& target) override;
  void start(DraftNetwork& passes, const CacheLayout& layout, const DecoderLimits& limits) override;

 protected:
  ChainRequest request(Sequence& s, int depth, uint64_t step, int most_rows) override;

 private:
  int first_to_compute(const Sequence& s) const;
  void catch_up(Sequence& s);

  Model small_;
  std::string identity_;
  std::deque<Decoder> decoders_;  // of the networks
  struct Window {
    int group, tokens;
  };
  std::vector<Window> windows_;  // the windows of its layers
};

// What its layers store is what the target stores there.
class FirstLayersDrafter : public ChainDrafter {
 public:
  FirstLayersDrafter(int layers, DraftOutput output) : ChainDrafter(std::move(output)), layers_(layers) {}
  DrafterKind kind() const override { return DrafterKind::kEarlyExit; }
  std::unique_ptr<DraftNetwork> make_network(const DraftTarget& target) override;

 protected:
  ChainRequest request(Sequence& s, int depth, uint64_t step, int most_rows) override;

 private:
  int layers_;
};

// An EAGLE head, or the target's layer for multi-token prediction. Its layer follows the target's in the cache, and has a
// row for each of the target's.
class FeatureDrafter : public ChainDrafter {
 public:
  FeatureDrafter(DrafterKind kind, FeatureLayer layer, DraftOutput output);
  DrafterKind kind() const override { return kind_; }
  std::string identity() const override { return identity_; }
  std::unique_ptr<DraftNetwork> make_network(const DraftTarget& target) override;

 protected:
  ChainRequest request(Sequence& s, int depth, uint64_t step, int most_rows) override;

 private:
  DrafterKind kind_;
  std::string identity_;
  std::shared_ptr<FeatureLayer> layer_;
  std::deque<FeaturePredictor> predictors_;  // of the networks
};

}  // namespace quire
