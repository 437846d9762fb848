// Computes in this process, on the calling thread and its team.
#pragma once

#include <memory>
#include <vector>

#include "engine/step/executor.h"
#include "model/decoder.h"
#include "ops/cache_memory.h"
#include "speculate/network/draft_network.h"

namespace quire {

// Owns the activations and the cache. It computes in launch() and does not overlap with planning: with two threads, SmolLM2
// and 1 or 32 sequences, planning is 0.1 to 0.3 % of a step's time, and sampling uses all threads.
class LocalExecutor final : public Executor {
 public:
  // config, weights and the backend, which has the weights, must outlive it. Throws std::bad_alloc, Error (kResource).
  LocalExecutor(const ModelConfig& config, const Weights& weights, const CacheShape& shape, Backend& backend,
                Activations activations, const DecoderLimits& limits);
  // What it allocates, with what the backend allocates for its operations.
  static size_t memory_bytes(const ModelConfig& config, const DecoderLimits& limits, const OperationsBytes& operations);

  // What computes the passes of a drafter.
  void set_drafter(std::unique_ptr<DraftNetwork> drafter) { drafter_ = std::move(drafter); }

  void launch(const ForwardInput& input) override;
  const ForwardOutput& wait() override { return output_; }
  void commit(const CacheChanges& changes) override;
  std::span<const std::byte> read(const CachePlace& place) override { return cache_.read(place, read_); }
  void write(const CachePlace& place, std::span<const std::byte> bytes) override { cache_.write(place, bytes); }

  // For commands that measure or check the parts; the engine does not use them.
  Decoder& decoder() { return decoder_; }
  CacheMemory& cache() { return cache_; }

 private:
  void pool(const PooledRows& pooled, std::vector<float>& result);

  const ModelConfig& config_;
  ExpertStore* const experts_;  // of the weights; nullptr: all experts are in memory
  Backend& backend_;
  CacheMemory cache_;
  Decoder decoder_;
  std::unique_ptr<DraftNetwork> drafter_;
  BackendMemory pooled_;  // hidden states of some pooled rows
  HostCopy host_pooled_, read_;
  ForwardOutput output_;
};

}  // namespace quire
