// The forward pass: one for all families, for prefill and decode.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "model/adapter/adapter.h"
#include "model/batch.h"
#include "model/config.h"
#include "model/stages/micro_batches.h"
#include "model/step_profile.h"
#include "model/weights.h"
#include "model/workspace.h"
#include "ops/backend.h"
#include "ops/cache_memory.h"
#include "ops/stage_link.h"
#include "quire/types.h"

namespace quire {

// The part of a model that forward() runs.
struct Pass {
  int layers = 0;                  // the first ones, then the output norm and the output matrix; 0: all
  const Linear* output = nullptr;  // instead of the output matrix: some of its rows (model/packing/output_rows.h)
  bool reads_logits = true;        // false: they stay where they are, as Decoder::logits(), and forward() returns none
};

// Allocates the activations of a step once. A row's logits depend on its sequence's tokens alone, not on the batch, the
// chunks, the pages or the threads (docs/exactness.md).
class Decoder {
 public:
  // The arguments that are references must outlive the decoder; weights and cache are in the backend's memory.
  // activations: the form of the linears' inputs. first_layer: of the cache layout; a drafter's layers follow its target's.
  // layers: those of its stage, whose weights and cache it has; {}: all.
  Decoder(const ModelConfig& config, const Weights& weights, CacheMemory& cache, Backend& backend,
          Activations activations, DecoderLimits limits, int first_layer = 0, LayerRange layers = {});
  ~Decoder();

  // Stores the keys and values of all rows in their pages and returns the logits [rows that want them][vocab], in row
  // order. They are valid until the next call; the caller may change them.
  //
  // With fewer layers, it stores the keys and values of those layers: the bits that a pass of all layers stores. So a
  // model can draft with its first layers, and verifying the drafts overwrites nothing with other numbers. The layers
  // must be those of can_exit_after().
  std::span<float> forward(const Batch& batch, const Pass& pass = {});

  // A stage's part of forward(): computes its layers for each part of the batch, in order, with rows of the stage before and for
  // the stage after. The last stage returns the logits of the whole batch, the others none.
  std::span<float> forward(const Batch& batch, std::span<const MicroBatch> parts, StageLink& link);

  // Gives states the bits that they would have if only the right drafts of the last batch had been computed. Once per
  // batch, for distinct drafts.
  void advance(std::span<const StateAdvance> advances);

  // Those of the last forward() that did not read them: in the backend's memory, valid until the next call. Operations may still
  // run.
  Rows logits() const;

  // The normalised final hidden states of the last batch [rows that wanted them], in row order: in the backend's memory,
  // valid until the next call.
  Rows hidden() const;

  // The adapter that Span::adapter means by `number`, from now on. It must outlive the batches that name it; its rank is at most
  // DecoderLimits::max_rank.
  void set_adapter(int number, const Adapter& adapter);

  // Control vectors: directions[i] [hidden] is added to the output of layer i from now on, in all rows; empty: nothing.
  // For all layers, or for none.
  void set_directions(std::vector<Vector> directions);

  // From now on every forward() adds its times to `profile`, which must outlive it; nullptr: no profile, at no cost.
  void profile(StepProfile* profile);

  // As Operations::take_expert_bytes(): of experts that at least one row of a batch has chosen.
  uint64_t take_expert_bytes();

  // For layers that are computed together with the decoder's: linears of its inputs' size, and rows.
  Operations& operations() const;

  // Writes the normalised final hidden states of these rows of the last batch to out [rows, hidden], in the backend's
  // memory.
  void final_hidden(std::span<const int32_t> rows, const Rows& out) const;

  // From a pooled hidden state [hidden] to an embedding or scores [pooled_size()], in float32.
  void pool(std::span<const float> hidden, std::span<float> out) const;

  const DecoderLimits& limits() const;
  // What a decoder allocates, besides what the backend allocates for operation_limits().
  static size_t memory_bytes(const ModelConfig& config, const DecoderLimits& limits);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quire
