// The forward pass: one for all families, prefill and decode alike.
#pragma once

#include <memory>
#include <span>

#include "kernels/kv_memory.h"
#include "kernels/ops.h"
#include "model/config.h"
#include "model/step_profile.h"
#include "model/weights.h"
#include "quire/types.h"

namespace quire {

// One token of one sequence.
struct Row {
  TokenId token;
  int position;
  bool wants_logits;
};

// The rows of one sequence in this step: consecutive in the batch and in position.
struct Span {
  int row, rows;
  int position;                    // of the first
  std::span<const int32_t> pages;  // the sequence's page table; covers its rows
};

struct Batch {
  std::span<const Row> rows;
  std::span<const Span> spans;  // in the order of the rows, covering all
};

struct DecoderLimits {
  int max_rows;       // of a batch
  int max_logits;     // rows that want logits
  int max_positions;  // tokens of a sequence
};

// Holds the activations of a step, allocated once. A row's logits depend on its sequence's tokens alone: not on the
// batch, the chunks, the pages or the threads (DESIGN: exact).
class Decoder {
 public:
  // All arguments outlive the decoder.
  Decoder(const ModelConfig& config, const Weights& weights, KvMemory& kv, const Compute& compute,
          DecoderLimits limits);
  ~Decoder();

  // Stores keys and values of all rows in their pages and gives the logits [rows that want them][vocab], in row order.
  // Valid until the next call; may be changed by the caller.
  std::span<float> forward(const Batch& batch);

  // From now on every forward() adds its times to `profile`, which outlives that; nullptr: none, at no cost.
  void profile(StepProfile* profile);

  const Compute& compute() const;

  // The final hidden state, normalised, of a row of the last batch: to out [hidden].
  void final_hidden(int row, std::span<float> out) const;

  const DecoderLimits& limits() const;
  static size_t memory_bytes(const ModelConfig& config, const DecoderLimits& limits,
                             int threads);  // that it will take

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quire
