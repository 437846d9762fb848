// Chains of drafts by drafters that compute: a draft model, the target's first layers, a layer that predicts hidden states.
// Many sequences draft as one batch, so a chain of depth d costs d passes whatever their number.
#pragma once

#include <span>
#include <vector>

#include "quire/types.h"
#include "speculate/network/draft_network.h"
#include "speculate/network/draft_picker.h"

namespace quire {

// The rows that a drafter has not computed yet, and how many tokens it shall draft after them.
struct ChainRequest {
  std::span<const std::vector<int32_t>> tables;  // the sequence's; they cover these rows and depth - 1 further ones
  int position;                                  // position of the first row
  // Of the rows; the drafts follow the last one. A FeaturePredictor's row at position t has token t + 1.
  std::span<const TokenId> tokens;
  int feature = 0;  // the target's hidden state that the first row reads, if the network reads them; the others follow
  int depth = 0;    // 0: the rows are only computed
  int rope_variant = 0;
  int adapter = -1;  // Span::adapter
  size_t task = 0;   // what the picker calls it
};

class Chains {
 public:
  // The network must outlive it. max_rows: of its passes.
  Chains(DraftNetwork& network, int max_rows, bool reads_features);

  // A token after each row, one after the other, as `picker` chooses them. out[i]: of request i; as many as it wants.
  // ids: the tokens of the network's columns (empty: all). All rows together fit a pass.
  void draft(std::span<const ChainRequest> requests, std::span<const TokenId> ids, DraftPicker& picker,
             std::span<TokenIds> out);
  // Only computes the rows of a request. Not for networks that read features.
  void compute(const ChainRequest& request);

 private:
  void add(const ChainRequest& request, int position, std::span<const TokenId> tokens, int depth);
  std::span<float> forward(bool predicted);

  DraftNetwork& network_;
  const bool reads_features_;
  std::vector<int32_t> features_;  // the features of rows_, if the network reads them
  std::vector<Row> rows_;
  std::vector<Span> spans_;
  std::vector<size_t> drafting_;   // requests with logits in this pass
  std::vector<DraftRow> choices_;  // one for each of those
  TokenIds picked_;
};

}  // namespace quire
