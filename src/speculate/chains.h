// Chains of drafts by drafters that compute: a draft model, the target's first layers, a layer that predicts hidden states.
// Many sequences draft as one batch, so a chain of depth d costs d passes whatever their number.
#pragma once

#include <span>
#include <vector>

#include "model/decoder.h"
#include "quire/types.h"
#include "speculate/draft_picker.h"

namespace quire {

// A forward pass over rows, as Decoder's. Drafting advances no recurrent states: the drafter must have none.
class ChainModel {
 public:
  virtual ~ChainModel() = default;
  virtual std::span<float> forward(const Batch& batch, const Rows& features, const Linear& output) = 0;
  // Whether rows need features: those of the target, or for further drafts what the last pass predicts for rows that want
  // their hidden state.
  virtual bool reads_features() const { return false; }
  virtual Rows predicted() const { return {}; }
};

// A model that reads tokens alone, or its first layers (0: all).
class TokenChainModel : public ChainModel {
 public:
  explicit TokenChainModel(Decoder& decoder, int layers = 0) : decoder_(decoder), layers_(layers) {}
  std::span<float> forward(const Batch& batch, const Rows&, const Linear& output) override {
    return decoder_.forward(batch, {.layers = layers_, .output = &output});
  }

 private:
  Decoder& decoder_;
  int layers_;
};

// The rows that a drafter has not computed yet, and how many tokens it shall draft after them.
struct ChainRequest {
  std::span<const std::vector<int32_t>> tables;  // of the sequence; they cover these rows and depth - 1 further ones
  int position;                                  // of the first row
  // Of the rows; the drafts follow the last one. A FeaturePredictor's row at position t has token t + 1.
  std::span<const TokenId> tokens;
  int feature = 0;  // the row of `features` that the first row reads; the others follow
  int depth = 0;    // 0: the rows are only computed
  int rope_variant = 0;
  size_t task = 0;  // what the picker calls it
};

class Chains {
 public:
  // The model must outlive it. limits: the model's; hidden: its size.
  Chains(ChainModel& model, const DecoderLimits& limits, int hidden);

  // A token after each row, one after the other, as `picker` chooses them. out[i]: of request i; as many as it wants.
  // output: the target's or drafter's output matrix, or some of its rows, with the tokens `ids` (empty: all). features: of
  // the target, [.., hidden], if the model reads them. All rows together fit the limits.
  void draft(std::span<const ChainRequest> requests, const Rows& features, const Linear& output,
             std::span<const TokenId> ids, DraftPicker& picker, std::span<TokenIds> out);
  // Only computes the rows of a request. Not for models that read features.
  void compute(const ChainRequest& request, const Linear& output);

 private:
  void add(const ChainRequest& request, int position, std::span<const TokenId> tokens, int depth);
  Rows gather_features(std::span<const ChainRequest> requests, const Rows& features);

  ChainModel& model_;
  size_t hidden_;
  std::vector<float> features_;  // [max_rows, hidden], if the model reads them
  std::vector<Row> rows_;
  std::vector<Span> spans_;
  std::vector<size_t> drafting_;   // requests with logits in this pass
  std::vector<DraftRow> choices_;  // of them
  TokenIds picked_;
};

}  // namespace quire
