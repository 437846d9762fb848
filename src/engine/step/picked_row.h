// Between the candidates of a row (sampling/candidates.h) and what is picked of it on a device (ops/pick.h).
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "ops/pick.h"
#include "sampling/candidates.h"

namespace quire {

// mask: SampleRow::mask. The pick is a view of it, of the candidates, or of `room`, which has the size of a mask.
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
