#include "speculate/network/chains.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace quire {

Chains::Chains(DraftNetwork& network, int max_rows, bool reads_features)
    : network_(network), reads_features_(reads_features) {
  const auto rows = static_cast<size_t>(max_rows);
  if (reads_features) features_.reserve(rows);
  rows_.reserve(rows);
  spans_.reserve(rows);
  drafting_.reserve(rows);
  choices_.reserve(rows);
  picked_.reserve(rows);
}

// depth: drafts still wanted, that after these rows included.
void Chains::add(const ChainRequest& request, int position, std::span<const TokenId> tokens, int depth) {
  spans_.push_back({.row = static_cast<int>(rows_.size()),
                    .rows = static_cast<int>(tokens.size()),
                    .position = position,
                    .tables = request.tables,
                    .rope_variant = request.rope_variant,
                    .adapter = request.adapter});
  for (size_t i = 0; i < tokens.size(); ++i)
    rows_.push_back({.token = tokens[i], .position = position + static_cast<int>(i), .wants_logits = false});
  rows_.back().wants_logits = depth > 0;
  rows_.back().wants_hidden = depth > 1 && reads_features_;
}

// predicted: the rows read what the last pass predicted, in its order.
std::span<float> Chains::forward(bool predicted) {
  return network_.forward({.rows = rows_, .spans = spans_, .features = features_, .predicted = predicted});
}

void Chains::compute(const ChainRequest& request) {
  assert(!reads_features_ && request.depth == 0);
  rows_.clear();
  spans_.clear();
  add(request, request.position, request.tokens, 0);
  forward(false);
}

void Chains::draft(std::span<const ChainRequest> requests, std::span<const TokenId> ids, DraftPicker& picker,
                   std::span<TokenIds> out) {
  assert(out.size() >= requests.size());
  for (size_t i = 0; i < requests.size(); ++i) out[i].clear();
  for (int drafted = 0;; ++drafted) {
    rows_.clear();
    spans_.clear();
    features_.clear();
    drafting_.clear();
    choices_.clear();
    for (size_t i = 0; i < requests.size(); ++i) {
      const ChainRequest& request = requests[i];
      assert(!request.tokens.empty());
      if (drafted == 0) {
        add(request, request.position, request.tokens, request.depth);
        for (size_t row = 0; reads_features_ && row < request.tokens.size(); ++row)
          features_.push_back(request.feature + static_cast<int32_t>(row));
      } else if (request.depth > drafted) {
        const int position = request.position + static_cast<int>(request.tokens.size()) + drafted - 1;
        add(request, position, {&out[i].back(), 1}, request.depth - drafted);
        // Exactly the rows of the last pass that wanted their hidden state draft once more, in the same order.
        if (reads_features_) features_.push_back(static_cast<int32_t>(features_.size()));
      }
      if (request.depth <= drafted) continue;
      drafting_.push_back(i);
      choices_.push_back({.task = request.task, .depth = drafted});
    }
    if (rows_.empty()) return;
    const std::span<float> logits = forward(drafted > 0);
    if (drafting_.empty()) return;
    picked_.resize(drafting_.size());
    picker.pick(logits, choices_, ids, picked_);
    for (size_t i = 0; i < drafting_.size(); ++i) out[drafting_[i]].push_back(picked_[i]);
  }
}

}  // namespace quire
