// The forward pass: one for all families, for prefill and decode.
#pragma once

#include <memory>
#include <span>

#include "model/batch.h"
#include "model/config.h"
#include "model/step_profile.h"
#include "model/weights.h"
#include "model/workspace.h"
#include "ops/cache_memory.h"
#include "ops/compute.h"
#include "quire/types.h"

namespace quire {

// Allocates the activations of a step once. A row's logits depend on its sequence's tokens alone, not on the batch, the
// chunks, the pages or the threads (docs/exactness.md).
class Decoder {
 public:
  // All arguments must outlive the decoder.
  Decoder(const ModelConfig& config, const Weights& weights, CacheMemory& cache, const Compute& compute,
          DecoderLimits limits);
  ~Decoder();

  // Stores the keys and values of all rows in their pages and returns the logits [rows that want them][vocab], in row
  // order. They are valid until the next call; the caller may change them.
  std::span<float> forward(const Batch& batch);

  // From now on every forward() adds its times to `profile`, which must outlive it; nullptr: no profile, at no cost.
  void profile(StepProfile* profile);

  // Weights of experts that the last forward() has read: those that at least one row has chosen.
  uint64_t expert_bytes() const;

  const Compute& compute() const;

  // Writes the normalised final hidden state of a row of the last batch to out [hidden].
  void final_hidden(int row, std::span<float> out) const;

  // From a pooled hidden state [hidden] to an embedding or scores [pooled_size()], in float32.
  void pool(std::span<const float> hidden, std::span<float> out) const;

  const DecoderLimits& limits() const;
  // What a decoder allocates.
  static size_t memory_bytes(const ModelConfig& config, const DecoderLimits& limits, int threads);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quire
