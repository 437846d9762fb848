// The logits of a whole text, to the bit.
#pragma once

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "engine/single_sequence.h"

namespace quire::testing {

// Logits of every position, computed in chunks of `chunk`. adapter: as for SingleSequence.
inline std::vector<float> all_logits(LoadedModel& model, const TokenIds& ids, int chunk, int adapter = -1) {
  SingleSequence sequence(model, adapter);
  std::vector<float> logits;
  for (size_t at = 0; at < ids.size(); at += static_cast<size_t>(chunk)) {
    const auto part =
        sequence.append(std::span(ids).subspan(at, std::min(static_cast<size_t>(chunk), ids.size() - at)), true);
    logits.insert(logits.end(), part.begin(), part.end());
  }
  return logits;
}

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace quire::testing
