// Asks a device for the logits of a row's candidates (sampling/candidates.h, ops/pick.h), and gives them to the sampler.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "ops/pick.h"
#include "sampling/candidates.h"

namespace quire {

// mask: SampleRow::mask. room: as large as a mask. The pick refers to these and to the candidates, which must outlive it.
Pick pick_for(const Candidates& candidates, std::span<const uint32_t> mask, std::span<uint32_t> room);

// The logits that were picked, as the sampler reads them.
class PickedRow {
 public:
  // Replaces row.ids and row.logits by views of its own memory.
  void set(const Picked& picked, SampleRow& row);

 private:
  std::vector<std::pair<TokenId, float>> picked_;
  std::vector<TokenId> ids_;
  std::vector<float> logits_;
};

}  // namespace quire
