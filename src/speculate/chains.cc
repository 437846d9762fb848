#include "speculate/chains.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace quire {

Chains::Chains(ChainModel& model, const DecoderLimits& limits, int hidden)
    : model_(model), hidden_(static_cast<size_t>(hidden)) {
  const auto rows = static_cast<size_t>(limits.max_rows);
  if (model.reads_features()) features_.resize(rows * hidden_);
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

void Chains::compute(const ChainRequest& request, const Linear& output) {
  assert(!model_.reads_features() && request.depth == 0);
  rows_.clear();
  spans_.clear();
  add(request, request.position, request.tokens, 0);
  model_.forward({rows_, spans_}, {}, output);
}

void Chains::draft(std::span<const ChainRequest> requests, const Rows& features, const Linear& output,
                   std::span<const TokenId> ids, DraftPicker& picker, std::span<TokenIds> out) {
  assert(out.size() >= requests.size() && (ids.empty() || std::cmp_equal(ids.size(), output.weight.rows)));
  for (size_t i = 0; i < requests.size(); ++i) out[i].clear();
  Rows from = gather_features(requests, features);
  for (int drafted = 0;; ++drafted) {
    rows_.clear();
    spans_.clear();
    drafting_.clear();
    choices_.clear();
    for (size_t i = 0; i < requests.size(); ++i) {
      const ChainRequest& request = requests[i];
      assert(!request.tokens.empty());
      if (drafted == 0) {
        add(request, request.position, request.tokens, request.depth);
      } else if (request.depth > drafted) {
        const int position = request.position + static_cast<int>(request.tokens.size()) + drafted - 1;
        add(request, position, {&out[i].back(), 1}, request.depth - drafted);
      }
      if (request.depth <= drafted) continue;
      drafting_.push_back(i);
      choices_.push_back({.task = request.task, .depth = drafted});
    }
    if (rows_.empty()) return;
    const std::span<float> logits = model_.forward({rows_, spans_}, from, output);
    if (drafting_.empty()) return;
    picked_.resize(drafting_.size());
    picker.pick(logits, choices_, ids, picked_);
    for (size_t i = 0; i < drafting_.size(); ++i) out[drafting_[i]].push_back(picked_[i]);
    from = model_.predicted();
  }
}

}  // namespace quire
