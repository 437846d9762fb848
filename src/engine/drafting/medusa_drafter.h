// Drafts by Medusa heads: all tokens of a draft in one pass.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "engine/drafting/draft_model.h"
#include "speculate/network/medusa.h"

namespace quire {

class MedusaDrafter : public DraftModel {
 public:
  MedusaDrafter(MedusaHeads heads, DraftOutput output);
  DrafterKind kind() const override { return DrafterKind::kMedusa; }
  bool sequential() const override { return false; }
  std::unique_ptr<DraftNetwork> make_network(const DraftTarget& target) override;
  void start(DraftNetwork& passes, const CacheLayout& layout, const DecoderLimits& limits) override;
  void draft(std::span<const DraftTask> tasks, uint64_t step, DraftPicker& picker) override;

 private:
  int count_;
  std::shared_ptr<const MedusaHeads> heads_;
  DraftOutput output_;
  std::deque<Medusa> medusas_;  // of the networks
  DraftNetwork* passes_ = nullptr;

  // Reused from step to step.
  std::vector<size_t> drafting_;  // tasks
  std::vector<DraftRow> rows_;
  TokenIds picked_;
  std::vector<Row> last_rows_;  // whose hidden states the heads read
  std::vector<int32_t> features_;
};

}  // namespace quire
