#include "engine/drafting/medusa_drafter.h"

#include <algorithm>
#include <utility>

namespace quire {

MedusaDrafter::MedusaDrafter(MedusaHeads heads, DraftOutput output)
    : count_(static_cast<int>(heads.heads.size())),
      heads_(std::make_shared<MedusaHeads>(std::move(heads))),
      output_(std::move(output)) {}

std::unique_ptr<DraftNetwork> MedusaDrafter::make_network(const DraftTarget& target) {
  Medusa& medusa =
      medusas_.emplace_back(heads_, target.config, target.backend, target.activations, target.limits.max_logits);
  return std::make_unique<MedusaNetwork>(medusa, target.features(), output_.take(target.weights, target.backend));
}

void MedusaDrafter::start(DraftNetwork& passes, const CacheLayout&, const DecoderLimits&) { passes_ = &passes; }

void MedusaDrafter::draft(std::span<const DraftTask> tasks, uint64_t step, DraftPicker& picker) {
  drafting_.clear();
  last_rows_.clear();
  features_.clear();
  int depth = 0;
  for (size_t i = 0; i < tasks.size(); ++i) {
    if (tasks[i].depth == 0) continue;
    Sequence& s = *tasks[i].sequence;
    const ModelDrafting& d = s.drafting->model;
    s.drafts.clear();
    if (d.step != step || d.features_at + d.features + 1 != static_cast<int>(s.tokens.size())) continue;
    last_rows_.push_back({.token = s.tokens.back(), .position = d.features_at + d.features, .wants_logits = true});
    features_.push_back(d.feature + d.features - 1);
    depth = std::max(depth, std::min(tasks[i].depth, count_));
    drafting_.push_back(i);
  }
  if (drafting_.empty()) return;
  rows_.clear();
  for (const size_t i : drafting_) {
    for (int k = 0; k < depth; ++k) rows_.push_back({.task = i, .depth = k, .wanted = k < tasks[i].depth});
  }
  picked_.assign(rows_.size(), kNoToken);
  const std::span<float> logits = passes_->forward({.rows = last_rows_, .features = features_, .heads = depth});
  picker.pick(logits, rows_, output_.ids(), picked_);
  for (size_t i = 0; i < rows_.size(); ++i) {
    if (rows_[i].wanted) tasks[rows_[i].task].sequence->drafts.push_back(picked_[i]);
  }
}

}  // namespace quire
