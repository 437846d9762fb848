// Measures configurations on this machine: runs of a workload in alternation, and divergences of their logits.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli/advise/options.h"
#include "cli/advise/prompts.h"
#include "cli/advise/workload.h"
#include "cli/terminal/progress.h"

namespace quire {

// What the default gave while the runs were given their length.
struct AdviceBaseline {
  ModelInfo model;
  RunFigures figures;
  double load_seconds = 0;
};

// Seconds from nothing to a loaded model, whose files the system has read before.
struct AdviceStarts {
  double packing = 0, mapping = 0;  // without a pack cache; from one
};

class AdviceMeasurer {
 public:
  // `engine`: the default. Loads the model, and fits the workload to its context and to runs of about `slice` seconds: by the
  // number of requests, and if that is not enough, by their lengths. `progress` must outlive it. Throws Error: the model
  // cannot be loaded, or only embeds texts.
  AdviceMeasurer(EngineOptions engine, AdviceWorkload workload, ServiceLevel level, double slice, Progress& progress);

  const AdviceBaseline& baseline() const { return baseline_; }
  const AdviceWorkload& workload() const { return workload_; }
  const EngineOptions& engine() const { return engine_; }  // the default, with the context that the workload needs
  double elapsed() const;                                  // seconds since the construction began

  // Before anything is compared.
  void set_topics(std::vector<AdviceTopic> topics);
  const std::vector<AdviceTopic>& topics() const { return topics_; }

  // As AdviceMeasures wants them. Two engines are loaded at a time if both fit.
  PairedScores compare(const AdviceConfiguration& base, const AdviceConfiguration& other, int rounds);
  double divergence(const AdviceConfiguration& configuration);
  AdviceMeasures measures();

  // Writes a pack cache to a folder of its own for a moment. Calls `check` now and then, which may throw. Throws Error.
  AdviceStarts measure_starts(const std::function<void()>& check);

  // Tokens whose predictions divergence() compares.
  int compared_tokens() const { return compared_tokens_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Loaded {
    AdviceConfiguration configuration;
    std::unique_ptr<Engine> engine;
  };

  std::unique_ptr<Engine> load(const AdviceSettings& settings);
  void fit_runs(double slice);
  RunFigures run(Engine& engine, uint64_t number);
  void warm_up(Engine& engine);
  Engine& loaded(const AdviceConfiguration& configuration, const AdviceConfiguration& keep);
  AdviceScore score(const RunFigures& figures) const;
  double measured_divergence(const AdviceSettings& settings);
  void say(const std::string& what);

  const Clock::time_point start_ = Clock::now();
  EngineOptions engine_;
  AdviceWorkload workload_;
  const ServiceLevel level_;
  Progress& progress_;
  std::vector<AdviceTopic> topics_;
  std::unique_ptr<AdvicePrompts> prompts_;
  AdviceBaseline baseline_;
  std::vector<Loaded> pool_;
  size_t most_loaded_ = 2;
  uint64_t next_run_ = 0;
  double longest_ = 0;  // seconds after which a run is cut off
  TokenIds text_;       // that divergence() reads
  int compared_tokens_ = 0;
  std::map<std::pair<std::string, std::string>, double> divergences_;  // by activations and KV cache type
};

}  // namespace quire
