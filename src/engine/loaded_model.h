// A model that is ready to run.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/adapters/adapters.h"
#include "engine/drafting/draft_model.h"
#include "engine/drafting/drafter_facts.h"
#include "engine/drafting/text_drafters.h"
#include "engine/memory_budget.h"
#include "engine/memory_plan.h"
#include "engine/ranks/processes_executor.h"
#include "engine/ranks/ranks_executor.h"
#include "engine/ranks/stages_executor.h"
#include "engine/runtime.h"
#include "engine/step/local_executor.h"
#include "ops/offload/host_experts.h"
#include "quire/engine.h"

namespace quire {

// Owns threads, weights, KV cache and activations. Commands that need no scheduler (verify, perplexity, bench) use it
// directly.
struct LoadedModel {
  // Throws Error if an option is invalid, the model cannot be loaded, or memory is short. max_logits: rows with logits
  // per step; 0: one per sequence and some for the log-probabilities of prompts.
  // runtime: shared with other models; nullptr: one of its own.
  explicit LoadedModel(EngineOptions given, int max_logits = 0, std::shared_ptr<Runtime> shared = nullptr);

  // As given, but what a bidirectional model cannot use is off: prompts in chunks, and the prefix cache.
  EngineOptions options;
  std::shared_ptr<Runtime> runtime_owner;
  Runtime& runtime;
  MemoryPlan plan;                   // all that is allocated, and what requests may take
  MemoryBudget::Share memory_share;  // plan.total() bytes of the runtime's memory
  MemoryBudget::Share host_share;    // plan.host->total() bytes of the host's next to a device, or none
  Model target;                      // options.model; the draft model belongs to its drafter
  // With devices that are ranks: those of the ranks after the first, which has `target`'s.
  std::vector<Weights> rank_weights;
  // The CPU's layers next to a device, which has `target`'s last ones; nullptr: there are none.
  std::unique_ptr<Model> cpu_layers;
  std::optional<ChatTemplate> chat_template;
  ModelInfo info;
  std::string identity;        // everything its results depend on besides its input; empty unless an option needs it
  std::string cache_identity;  // likewise of the bytes of a cached unit
  Adapters adapters;
  // With a device of which the CPU has some experts; else nullptr. What computes has memory of its backends.
  std::unique_ptr<HostExpertsBackend> host_experts;
  std::unique_ptr<RankGroup> rank_group;    // nullptr: one rank; likewise
  std::unique_ptr<StageGroup> stage_group;  // likewise
  // One of `local`, `ranks`, `stages`, `processes` and `remote` computes; the others are nullptr. What drafters compute has memory of
  // this one's backend.
  std::unique_ptr<ProcessesExecutor> processes;
  std::unique_ptr<TextDrafters> text_drafters;  // nullptr: no speculation
  std::unique_ptr<DraftModel> draft_model;      // nullptr: no drafter computes
  // Those that make the networks of the ranks of `rank_weights`.
  std::vector<std::unique_ptr<DraftModel>> rank_draft_models;
  CacheShape cache;
  std::unique_ptr<LocalExecutor> local;
  std::unique_ptr<RanksExecutor> ranks;
  std::unique_ptr<StagesExecutor> stages;
  std::unique_ptr<Executor> remote;
  Executor& executor() const;
  // Has `other` compute from now on.
  void compute_by(std::unique_ptr<Executor> other);
  // The decoder of all layers, or that of the first rank, for measuring; nullptr if `remote` or `stages` computes.
  Decoder* decoder() const;
  // What this process's ranks, or the first of them, have received from others.
  GatherCounts gathered() const;

  // What computes with all of `target`'s weights, where `local` does.
  Backend& backend() const { return host_experts ? *host_experts : runtime.backend(); }
  // Whether this process has all weights in one place.
  bool has_all_layers() const { return own_part().layers == LayerRange() && plan.devices == 1; }
  // Bytes of rows that this process's stages have sent to the next ones.
  uint64_t stage_bytes() const;

  // As Engine::add_adapter(). No step may run meanwhile.
  void add_adapter(const AdapterOption& option);
  // load(weights, backend), an Adapter, for each rank that has memory of its own: by rank, or one for all.
  template <class Load>
  std::vector<Adapter> load_by_rank(const Load& load) const;
  // As Decoder::set_adapter(), on each rank. by_rank: as load_by_rank().
  void set_adapter(int number, std::span<const Adapter> by_rank);

 private:
  size_t plan_within(size_t left, size_t host_left, const ModelFacts& facts, int max_logits);
  void load(const Checkpoint& checkpoint, const ModelConfig& config);
  LoadedLayers own_part() const;
  void load_other_ranks(const Checkpoint& checkpoint, WeightOptions loading);
  void add_adapter(const AdapterOption& option, const Checkpoint& checkpoint);
  void load_control_vectors();
  void load_drafters(const Checkpoint& checkpoint, const DrafterFacts& facts);
  void make_executor();
  void leave_experts_to(Backend& host);
  void make_stages();
  void agree(const Checkpoint& checkpoint, const ModelConfig& config);
  void agree_on_cache();
  void tune_kernels();
  // f(executor, its backend, memory) for each rank or stage. memory: which of the ranks' memories it has; 0: that of `target`'s weights.
  template <class F>
  void for_each_rank(F f);
  void make_drafter(LocalExecutor& executor, Backend& backend, size_t memory) const;
  void settle_memory(ModelFacts& facts, size_t memory_before, int max_logits);
  void describe(const Checkpoint& checkpoint);
  void describe_memory();
};

template <class Load>
std::vector<Adapter> LoadedModel::load_by_rank(const Load& load) const {
  std::vector<Adapter> by_rank;
  by_rank.push_back(load(target.weights, runtime.backend()));
  for (const Weights& other : rank_weights) by_rank.push_back(load(other, *runtime.devices()[by_rank.size()]));
  return by_rank;
}

}  // namespace quire
