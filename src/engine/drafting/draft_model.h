// The drafters that compute: a small model, the target's first layers, or heads on its hidden states.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "engine/drafting/drafter_kinds.h"
#include "engine/runtime.h"
#include "engine/sequence.h"
#include "model/decoder.h"
#include "model/packing/output_rows.h"
#include "ops/cache_memory.h"
#include "speculate/network/draft_network.h"
#include "speculate/network/draft_picker.h"

namespace quire {

// A sequence that wants drafts. The step's pages have room for them.
struct DraftTask {
  Sequence* sequence;
  int depth;  // most tokens; 0: none, but the drafter may look at the last step's
};

// The model whose tokens are drafted, ready to compute.
struct DraftTarget {
  const ModelConfig& config;
  const Weights& weights;
  CacheMemory& cache;
  Backend& backend;
  Activations activations;
  Decoder& decoder;
  DecoderLimits limits;

  TargetFeatures features() const {
    return [&decoder = decoder] { return decoder.hidden(); };
  }
};

// Chooses what to compute, on the engine's thread; what computes is its network, which belongs to the executor.
class DraftModel {
 public:
  // Hidden states of the target that the drafter reads.
  enum class Reads : uint8_t { kNothing, kSampledRows, kAllRows };

  // checkpoint: the target's. Throws Error: its files cannot be used with this target.
  // memory: most bytes of its matrices, which lie in the backend's memory.
  static std::unique_ptr<DraftModel> load(DrafterKind kind, const EngineOptions& options, const Checkpoint& checkpoint,
                                          const Model& target, Backend& backend, Team& team, size_t memory);
  virtual ~DraftModel() = default;

  virtual DrafterKind kind() const = 0;
  static Reads reads_of(DrafterKind kind);
  Reads reads() const { return reads_of(kind()); }
  virtual bool sequential() const { return true; }     // a pass for each further token
  virtual std::string identity() const { return {}; }  // names what it keeps in the cache's pages

  // What computes; one for each rank. What `target` names and this drafter must outlive it.
  virtual std::unique_ptr<DraftNetwork> make_network(const DraftTarget& target) = 0;
  // Before the first draft(). passes: those of the network, by whoever has it; it must outlive the drafter. limits: the
  // target's.
  virtual void start(DraftNetwork& passes, const CacheLayout& layout, const DecoderLimits& limits) = 0;
  // Sets the drafts of the tasks with a depth. step: the target's last one. Each sequence takes part, if only with
  // depth 0. `picker` counts requests as tasks. May throw; then no sequence of the tasks may draft again.
  virtual void draft(std::span<const DraftTask> tasks, uint64_t step, DraftPicker& picker) = 0;

  // The target's step number `step` had these hidden states: `count` rows from `row` on, of the tokens from `position` on.
  static void keep_features(Sequence& s, uint64_t step, int row, int position, int count);
};

// The output matrix of a drafter, or its rows of frequent tokens.
class DraftOutput {
 public:
  explicit DraftOutput(TokenIds frequent = {});  // none: all tokens
  // The matrix. The weights, which are the backend's and always the same, must outlive this.
  const Linear& take(const Weights& weights, Backend& backend);
  std::span<const TokenId> ids() const { return ids_; }  // the tokens of its rows; empty: all

 private:
  TokenIds ids_;
  std::optional<OutputRows> subset_;
};

}  // namespace quire
