// Computes in this process, on the calling thread and its team.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "engine/step/executor.h"
#include "engine/step/logits_download.h"
#include "model/decoder.h"
#include "model/stages/micro_batches.h"
#include "ops/cache_memory.h"
#include "ops/stage_link.h"
#include "speculate/network/draft_network.h"

namespace quire {

// What an executor does of each pass if several stages share the model's layers.
struct StageWork {
  LayerRange layers;
  StageLink* link = nullptr;  // nullptr: it computes all layers
  MicroBatchLimits cut;       // of steps; all stages must have the same
};
// Only the last stage has results.
DecoderLimits stage_limits(DecoderLimits limits, bool last);

// Owns the activations and the cache. On the CPU it computes in launch() and does not overlap with planning: with two threads,
// SmolLM2 and 1 or 32 sequences, planning is 0.1 to 0.3 % of a step's time, and sampling uses all threads. On a device that
// picks logits, launch() starts the pass of the target, and wait() ends it.
class LocalExecutor final : public Executor {
 public:
  // config, weights, the link, and the backend, which has the weights, must outlive it. Throws std::bad_alloc, Error (kResource).
  LocalExecutor(const ModelConfig& config, const Weights& weights, const CacheShape& shape, Backend& backend,
                Activations activations, const DecoderLimits& limits, const StageWork& stage = {});
  // What it allocates, with what the backend allocates for its operations.
  static size_t memory_bytes(const ModelConfig& config, const DecoderLimits& limits, const OperationsBytes& operations);

  // What computes the passes of a drafter; if there are stages, on the last one only.
  void set_drafter(std::unique_ptr<DraftNetwork> drafter) { drafter_ = std::move(drafter); }

  void launch(const ForwardInput& input) override;
  const ForwardOutput& wait() override;
  bool computes_apart() const override { return picks_; }
  bool copies_meanwhile() const override { return picks_; }
  bool picks_logits() const override { return picks_; }
  bool runs_ahead() const override { return picks_ && takes_picked_tokens(config_); }
  void commit(const CacheChanges& changes) override;
  void read(const CachePlace& place, std::span<std::byte> to) override { cache_.read(place, to); }
  void write(const CachePlace& place, std::span<const std::byte> bytes) override { cache_.write(place, bytes); }

  // To those of the last result: by other stages.
  void add_expert_bytes(uint64_t bytes) { output_.expert_bytes += bytes; }

  // For commands that measure or check the parts; the engine does not use them.
  Decoder& decoder() { return decoder_; }
  CacheMemory& cache() { return cache_; }

 private:
  void end_pass(const ForwardInput& input);
  void pool(const PooledRows& pooled, std::vector<float>& result);

  const ModelConfig& config_;
  const StageWork stage_;
  ExpertStore* const experts_;  // of the weights; nullptr: all experts are in memory
  Backend& backend_;
  const bool picks_;  // false: the host reads logits in place, or another stage has them
  CacheMemory cache_;
  Decoder decoder_;
  std::unique_ptr<DraftNetwork> drafter_;
  BackendMemory pooled_;  // hidden states of some pooled rows
  HostCopy host_pooled_;
  struct Launched {
    const ForwardInput* input = nullptr;  // nullptr: none
    LogitsDownload download;
  };
  std::array<Launched, 2> passes_;  // that have not ended
  size_t first_ = 0;                // of them
  ForwardOutput output_;
};

}  // namespace quire
