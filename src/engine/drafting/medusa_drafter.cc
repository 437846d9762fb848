#include "engine/drafting/medusa_drafter.h"

#include <algorithm>
#include <utility>

namespace quire {

MedusaDrafter::MedusaDrafter(MedusaHeads heads, DraftOutput output)
    : count_(static_cast<int>(heads.heads.size())), heads_(std::move(heads)), output_(std::move(output)) {}

void MedusaDrafter::start(const DraftTarget& target) {
  target_ = &target.decoder;
  output_.start(target.weights, target.compute.team);
  medusa_.emplace(std::move(*heads_), target.config, target.compute, target.limits.max_logits);
  heads_.reset();
}

void MedusaDrafter::draft(std::span<const DraftTask> tasks, uint64_t step, DraftPicker& picker) {
  const Rows hidden = target_->hidden();
  drafting_.clear();
  features_.clear();
  int depth = 0;
  for (size_t i = 0; i < tasks.size(); ++i) {
    if (tasks[i].depth == 0) continue;
    Sequence& s = *tasks[i].sequence;
    const ModelDrafting& d = s.drafting->model;
    s.drafts.clear();
    if (d.step != step || d.features_at + d.features + 1 != static_cast<int>(s.tokens.size())) continue;
    const float* feature = hidden.row(d.feature + d.features - 1);
    features_.insert(features_.end(), feature, feature + hidden.cols);
    depth = std::max(depth, std::min(tasks[i].depth, count_));
    drafting_.push_back(i);
  }
  if (drafting_.empty()) return;
  rows_.clear();
  for (const size_t i : drafting_) {
    for (int k = 0; k < depth; ++k) rows_.push_back({.task = i, .depth = k, .wanted = k < tasks[i].depth});
  }
  picked_.assign(rows_.size(), kNoToken);
  const Rows features{features_.data(), hidden.cols, static_cast<size_t>(hidden.cols)};
  const std::span<float> logits =
      medusa_->forward(features, static_cast<int>(drafting_.size()), depth, output_.matrix());
  picker.pick(logits, rows_, output_.ids(), picked_);
  for (size_t i = 0; i < rows_.size(); ++i) {
    if (rows_[i].wanted) tasks[rows_[i].task].sequence->drafts.push_back(picked_[i]);
  }
}

}  // namespace quire
