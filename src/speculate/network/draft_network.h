// What a drafter computes: passes over rows of many sequences, by whoever has its weights.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "model/decoder.h"
#include "speculate/network/feature_predictor.h"
#include "speculate/network/medusa.h"

namespace quire {

struct DraftPass {
  std::span<const Row> rows;
  std::span<const Span> spans = {};
  // Of networks that read hidden states: for each row, which row it reads of those that the target's last pass kept
  // (Decoder::hidden()), or if `predicted`, of those that this network's last pass predicted.
  std::span<const int32_t> features = {};
  bool predicted = false;
  int heads = 0;  // Medusa's heads: each gives logits for each row
};

class DraftNetwork {
 public:
  virtual ~DraftNetwork() = default;
  // Returns the logits [rows that want them][columns], or with heads [rows][heads][columns]; valid until the next call. The
  // columns are those of the drafter's output matrix.
  virtual std::span<float> forward(const DraftPass& pass) = 0;
};

// A model that reads tokens alone, or its first layers (0: all). Drafting advances no recurrent states, so it must have
// none. The arguments must outlive it; output: the model's output matrix, or some of its rows.
class TokenNetwork : public DraftNetwork {
 public:
  TokenNetwork(Decoder& decoder, int layers, const Linear& output)
      : decoder_(decoder), layers_(layers), output_(output) {}
  std::span<float> forward(const DraftPass& pass) override;

 private:
  Decoder& decoder_;
  const int layers_;
  const Linear& output_;
};

// The hidden states that the target's last pass kept, in the memory of the backend that both share.
using TargetFeatures = std::function<Rows()>;

// A layer that predicts hidden states. The arguments must outlive it.
class FeatureNetwork : public DraftNetwork {
 public:
  FeatureNetwork(FeaturePredictor& predictor, TargetFeatures target, const Linear& output)
      : predictor_(predictor), target_(std::move(target)), output_(output) {}
  std::span<float> forward(const DraftPass& pass) override;

 private:
  FeaturePredictor& predictor_;
  const TargetFeatures target_;
  const Linear& output_;
};

// Medusa heads on the target's hidden states. The arguments must outlive it.
class MedusaNetwork : public DraftNetwork {
 public:
  MedusaNetwork(Medusa& medusa, TargetFeatures target, const Linear& output)
      : medusa_(medusa), target_(std::move(target)), output_(output) {}
  std::span<float> forward(const DraftPass& pass) override;

 private:
  Medusa& medusa_;
  const TargetFeatures target_;
  const Linear& output_;
};

}  // namespace quire
