#include "speculate/chains.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace quire {

Chains::Chains(ChainModel& model, const Compute& compute, const DecoderLimits& limits, int hidden)
    : model_(model), compute_(compute), hidden_(static_cast<size_t>(hidden)) {
  const auto rows = static_cast<size_t>(limits.max_rows);
  if (model.reads_features()) features_.resize(rows * hidden_);
  rows_.reserve(rows);
  spans_.reserve(rows);
  drafting_.reserve(rows);
  best_.reserve(rows);
}

// depth: drafts still wanted, that after these rows included.
void Chains::add(const ChainRequest& request, int position, std::span<const TokenId> tokens, int depth) {
  spans_.push_back({.row = static_cast<int>(rows_.size()),
                    .rows = static_cast<int>(tokens.size()),
                    .position = position,
                    .tables = request.tables,
                    .rope_variant = request.rope_variant});
  for (size_t i = 0; i < tokens.size(); ++i)
    rows_.push_back({.token = tokens[i], .position = position + static_cast<int>(i), .wants_logits = false});
  rows_.back().wants_logits = depth > 0;
  rows_.back().wants_hidden = depth > 1 && model_.reads_features();
}

Rows Chains::gather_features(std::span<const ChainRequest> requests, const Rows& features) {
  if (!model_.reads_features()) return {};
  float* to = features_.data();
  for (const ChainRequest& request : requests) {
    for (size_t i = 0; i < request.tokens.size(); ++i, to += hidden_)
      std::copy_n(features.row(request.feature + static_cast<int>(i)), hidden_, to);
  }
  return {features_.data(), static_cast<int>(hidden_), hidden_};
}

void Chains::draft(std::span<const ChainRequest> requests, const Rows& features, const Linear& output,
                   std::span<const TokenId> ids, std::span<std::vector<DraftedToken>> out) {
  assert(out.size() >= requests.size() && (ids.empty() || std::cmp_equal(ids.size(), output.weight.rows)));
  for (size_t i = 0; i < requests.size(); ++i) out[i].clear();
  Rows from = gather_features(requests, features);
  for (int drafted = 0;; ++drafted) {
    rows_.clear();
    spans_.clear();
    drafting_.clear();
    for (size_t i = 0; i < requests.size(); ++i) {
      const ChainRequest& request = requests[i];
      assert(!request.tokens.empty());
      if (drafted == 0) {
        add(request, request.position, request.tokens, request.depth);
      } else if (request.depth > drafted) {
        const int position = request.position + static_cast<int>(request.tokens.size()) + drafted - 1;
        add(request, position, {&out[i].back().token, 1}, request.depth - drafted);
      }
      if (request.depth > drafted) drafting_.push_back(i);
    }
    if (rows_.empty()) return;
    const std::span<float> logits = model_.forward({rows_, spans_}, from, output);
    if (drafting_.empty()) return;
    best_.resize(drafting_.size());
    best_tokens(compute_, logits, static_cast<int>(drafting_.size()), 1, ids, best_);
    for (size_t i = 0; i < drafting_.size(); ++i) out[drafting_[i]].push_back(best_[i]);
    from = model_.predicted();
  }
}

}  // namespace quire
