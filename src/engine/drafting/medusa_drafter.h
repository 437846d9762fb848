// Drafts by Medusa heads: all tokens of a draft in one pass.
#pragma once

#include <optional>
#include <vector>

#include "engine/drafting/draft_model.h"
#include "speculate/medusa.h"

namespace quire {

class MedusaDrafter : public DraftModel {
 public:
  MedusaDrafter(MedusaHeads heads, DraftOutput output);
  DrafterKind kind() const override { return DrafterKind::kMedusa; }
  bool sequential() const override { return false; }
  void start(const DraftTarget& target) override;
  void draft(std::span<const DraftTask> tasks, uint64_t step, DraftPicker& picker) override;

 private:
  int count_;
  std::optional<MedusaHeads> heads_;  // until start()
  DraftOutput output_;
  Decoder* target_ = nullptr;
  std::optional<Medusa> medusa_;

  // Reused from step to step.
  std::vector<size_t> drafting_;  // tasks
  std::vector<DraftRow> rows_;
  TokenIds picked_;
  std::vector<float> features_;
};

}  // namespace quire
