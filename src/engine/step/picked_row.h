// Asks a device for the logits of a row's candidates (sampling/candidates.h, ops/pick.h), and gives them to the sampler.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "ops/pick.h"
#include "sampling/candidates.h"

namespace quire {

// The row's logits do not count. room: as large as a mask. The pick refers to the row's mask, to room and to the candidates, which
// must outlive it.
Pick pick_for(const SamplingParams& params, const SampleRow& row, const Candidates& candidates,
              std::span<uint32_t> room);

// The logits that were picked, as the sampler reads them.
class PickedRow {
 public:
  // Sets row.ids and row.logits, views of its own memory, and what else was picked.
  void set(const Picked& picked, SampleRow& row);

 private:
  std::vector<std::pair<TokenId, float>> picked_;
  std::vector<TokenId> ids_;
  std::vector<float> logits_;
};

}  // namespace quire
