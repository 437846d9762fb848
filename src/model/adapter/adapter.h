// A LoRA adapter of a loaded model: low-rank changes of its linears (arXiv 2106.09685).
#pragma once

#include <cstddef>
#include <string>
#include <unordered_map>

#include "base/team.h"
#include "model/checkpoint.h"
#include "model/config.h"
#include "ops/backend_memory.h"
#include "ops/low_rank.h"

namespace quire {

class AdapterFiles;
struct Weights;

struct Adapter {
  int rank = 0;                                        // the largest of its changes
  std::string identity;                                // a hash of its numbers and scales, and of what they change
  BackendMemory memory;                                // has all matrices
  std::unordered_map<const Linear*, LowRank> changes;  // by the model's linear

  // What is added to the linear's results; nullptr: nothing.
  const LowRank* find(const Linear& w) const {
    const auto found = changes.find(&w);
    return found == changes.end() ? nullptr : &found->second;
  }
};

// What is known from the files' headers.
struct AdapterFacts {
  int rank = 0;      // the largest
  size_t bytes = 0;  // of its packed matrices
};
// Throws Error if the adapter does not fit the model: files of another kind, modules that the model does not have or that
// Quire does not change (embeddings, heads, experts, recurrent layers), matrices of other shapes.
AdapterFacts check_adapter(const AdapterFiles& files, const Checkpoint& checkpoint, const ModelConfig& config);

// What the matrices of an adapter take at most if its rank is at most `rank`: one that changes all it can, in float32.
size_t largest_adapter_bytes(const ModelConfig& config, int rank);

// Packs the matrices in the types that the files have. weights: the model's, which must outlive the adapter and stay where
// they are; likewise the backend. Throws Error as check_adapter(), and if a number is not finite.
Adapter load_adapter(const AdapterFiles& files, const Checkpoint& checkpoint, const ModelConfig& config,
                     const Weights& weights, Backend& backend, Team& team);

}  // namespace quire
