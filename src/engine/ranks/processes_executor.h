// Carries out orders in several processes, each of which has its share.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/ranks/rank_parts.h"
#include "engine/step/executor.h"
#include "engine/step/local_executor.h"
#include "json/parse.h"
#include "ops/cpu/cpu_backend.h"
#include "ops/process_group.h"
#include "ops/process_ranks.h"
#include "ops/process_stages.h"

namespace quire {

// Seconds that ranks wait for the results of others: EngineOptions::rank_timeout, or what fits.
double rank_patience(double given, bool stages);

// How stages cut the work; no layers: ranks share it by outputs and heads.
struct StageCut {
  std::vector<LayerRange> layers;  // by rank
  MicroBatchLimits micro_batches;
};

// Every process has one, with an executor of its own that has this rank's share of the cache. Rank 0 has the engine, sends its
// orders to the others, and carries them out like these. A unit is read and written as by one rank alone.
//
// If any process fails or is gone, the group is lost, and with it the executor: all functions throw Error (kResource).
class ProcessesExecutor final : public Executor {
 public:
  // As LocalExecutor; shape: of the whole model, equal in all processes. cpu: whose kernels and tuning to use, with the team.
  // patience: how many seconds ranks wait for the results of others. All of them must outlive it.
  ProcessesExecutor(ProcessGroup& group, double patience, const ModelConfig& config, const Weights& weights,
                    const CacheShape& shape, const CpuBackend& cpu, Team& team, Activations activations,
                    const DecoderLimits& limits, const StageCut& stages = {});
  // On rank 0, lets follow() of the others return.
  ~ProcessesExecutor() override;
  ProcessesExecutor(const ProcessesExecutor&) = delete;
  ProcessesExecutor& operator=(const ProcessesExecutor&) = delete;

  LocalExecutor& local() { return local_; }
  Backend& backend() { return backend_; }
  const GatherCounts& gathered() const { return communicator_.counts(); }  // what this rank has received
  uint64_t sent_bytes() const { return link_.sent_bytes(); }               // of rows, to the next stage

  // Rank 0.
  void launch(const ForwardInput& input) override;
  const ForwardOutput& wait() override { return has_stages_ ? output_ : local_.wait(); }
  void commit(const CacheChanges& changes) override;
  void read(const CachePlace& place, std::span<std::byte> to) override;
  void write(const CachePlace& place, std::span<const std::byte> bytes) override;
  std::string_view lost() const override { return lost_; }
  // Finds out whether all others answer.
  void beat();

  // The other ranks: carries out what rank 0 orders, until its executor ends.
  void follow();

 private:
  template <class Work>
  void attempt(const Work& work);
  void order(const char* what, Json json, std::span<const std::byte> bytes = {});
  bool carry_out(std::span<const std::byte> message);
  void share_unit(const CachePlace& place, std::span<std::byte> to);
  void take(const CachePlace& place, std::span<const std::byte> bytes);
  void answer_beat();
  void send_output();
  void take_outputs(bool by_drafter);

  ProcessGroup& group_;
  const bool has_stages_;
  const RankParts parts_;
  ProcessRanks communicator_;
  ProcessStages link_;
  CpuBackend backend_;
  LocalExecutor local_;
  uint64_t orders_ = 0;
  std::string lost_;
  std::vector<std::byte> own_part_, all_parts_, message_;
  ForwardOutput output_;  // of the last stage
  std::vector<float> logits_;
};

}  // namespace quire
