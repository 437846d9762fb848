#include "cli/advise/measurer.h"

#include <fmt/format.h>
#include <sys/prctl.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/files/scratch_folder.h"
#include "cli/bench/limits.h"
#include "cli/compare/distance_tally.h"
#include "cli/text/chunk_run.h"
#include "cli/text/text_chunks.h"
#include "engine/runtime.h"

namespace quire {
namespace {

// What instructions and chat templates add to a prompt: usually, and with long system prompts.
constexpr int kTemplateTokens = 96, kMostTemplateTokens = 1024;
constexpr int kWarmUpAnswer = 8;  // tokens
// A run this many times as long as planned is cut off: baselines such as no KV cache would take minutes.
constexpr double kMostSlices = 3;
// Shorter lengths than this part of those asked for would be another workload. Runs that take longer are accepted instead:
// fewer options are tried.
constexpr double kLeastScale = 0.25;
constexpr double kEnoughSlices = 1.5, kMostFittingSlices = 12;
constexpr double kWorstViolation = 1e6;  // nothing was answered
constexpr size_t kComparedText = 512, kFirstCompared = 32;

// Takes huge pages from what this process allocates while it lives.
class NoHugePages {
 public:
  explicit NoHugePages(bool off) : off_(off) {
    if (off_ && ::prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) != 0)
      throw unsupported("the system does not let a process do without huge pages");
  }
  ~NoHugePages() {
    if (off_) ::prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0);
  }
  NoHugePages(const NoHugePages&) = delete;
  NoHugePages& operator=(const NoHugePages&) = delete;

 private:
  const bool off_;
};

double over(double seconds, const std::optional<double>& bound) { return bound ? seconds / *bound : 0; }

AdviceWorkload with_requests(AdviceWorkload workload, size_t count) {
  const std::vector<PlannedRequest> all = workload.requests;
  workload.requests.clear();
  for (size_t i = 0; i < count; ++i) workload.requests.push_back(all[i % all.size()]);
  return workload;
}

}  // namespace

AdviceMeasurer::AdviceMeasurer(EngineOptions engine, AdviceWorkload workload, ServiceLevel level, double slice,
                               Progress& progress)
    : engine_(std::move(engine)), workload_(std::move(workload)), level_(level), progress_(progress) {
  const int context = read_model_facts(engine_).config.max_positions;
  const int room = context - kTemplateTokens;
  if (room < context / 4) throw unsupported("the model's context of {} tokens is too short for advice", context);
  if (const int longest = workload_.longest(); longest > room)
    workload_ = scaled(std::move(workload_), static_cast<double>(room) / longest);
  engine_.max_model_len = std::min(context, workload_.longest() + kMostTemplateTokens);
  engine_.max_num_seqs = std::max(engine_.max_num_seqs, workload_.concurrency);
  engine_.max_num_batched_tokens = std::max(engine_.max_num_batched_tokens, engine_.max_num_seqs);
  progress_.stage("loading " + engine_.model);
  const Clock::time_point before = Clock::now();
  std::unique_ptr<Engine> first = load({.engine = engine_});
  baseline_.load_seconds = std::chrono::duration<double>(Clock::now() - before).count();
  baseline_.model = first->info();
  if (!baseline_.model.generates)
    throw unsupported("{} only embeds or classifies texts; advice is for models that generate", baseline_.model.name);
  prompts_ = std::make_unique<AdvicePrompts>(*first, workload_);
  text_ = prompts_->text(*first, std::min(kComparedText, static_cast<size_t>(context)));
  pool_.push_back({{}, std::move(first)});
  fit_runs(slice);
}

double AdviceMeasurer::elapsed() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

std::unique_ptr<Engine> AdviceMeasurer::load(const AdviceSettings& settings) {
  const NoHugePages none(!settings.huge_pages);
  return std::make_unique<Engine>(settings.engine);
}

void AdviceMeasurer::fit_runs(double slice) {
  progress_.stage("fitting the workload");
  Engine& engine = *pool_.front().engine;
  const AdviceWorkload asked = workload_;
  const auto concurrency = static_cast<size_t>(workload_.concurrency);
  longest_ = kMostFittingSlices * slice;
  double scale = 1, seconds = 0;
  for (;;) {
    warm_up(engine);
    workload_ = with_requests(scale < 1 ? scaled(asked, scale) : asked, concurrency);
    baseline_.figures = run(engine, next_run_++);
    const RunFigures& f = baseline_.figures;
    if (f.failed > 0) throw invalid("a request of the workload failed");
    // What was cut off would have taken longer.
    seconds = f.seconds * workload_.concurrency / std::max(f.completed, 1);
    if (seconds <= kEnoughSlices * slice || scale <= kLeastScale) break;
    scale = std::max(kLeastScale, scale * std::min(slice / seconds, 0.9));
  }
  const auto rounds = static_cast<size_t>(std::clamp(std::round(slice / std::max(seconds, 1e-6)), 1.0, 1e6));
  workload_ = with_requests(scale < 1 ? scaled(asked, scale) : asked,
                            std::clamp(rounds * concurrency, concurrency, asked.requests.size()));
  longest_ = std::min(longest_, kMostSlices * std::max(slice, seconds));
}

// Fills the shared prefix, and the engine learns what steps cost.
// The first request comes alone: the others find its prefix.
void AdviceMeasurer::warm_up(Engine& engine) {
  const auto count = static_cast<size_t>(workload_.concurrency);
  std::vector<ScheduledRequest> all = prompts_->requests(engine, with_requests(workload_, count), next_run_++);
  for (ScheduledRequest& scheduled : all) scheduled.request.sampling.max_tokens = kWarmUpAnswer;
  run_requests(engine, {all.front()}, {.concurrency = 1, .longest = longest_});
  run_requests(engine, all, {.concurrency = workload_.concurrency, .longest = longest_});
}

RunFigures AdviceMeasurer::run(Engine& engine, uint64_t number) {
  const auto requests = prompts_->requests(engine, workload_, number);
  return figures_of(run_requests(engine, requests, {.concurrency = workload_.concurrency, .longest = longest_}),
                    level_);
}

// `keep` is not unloaded for it.
Engine& AdviceMeasurer::loaded(const AdviceConfiguration& configuration, const AdviceConfiguration& keep) {
  for (const Loaded& one : pool_) {
    if (one.configuration == configuration) return *one.engine;
  }
  const AdviceSettings settings = advice_settings(engine_, topics_, configuration);
  const auto unload = [&] {
    const auto other = std::ranges::find_if(pool_, [&](const Loaded& one) { return one.configuration != keep; });
    if (other != pool_.end()) {
      pool_.erase(other);
    } else if (!pool_.empty() && most_loaded_ == 1) {
      pool_.pop_back();
    }
  };
  while (pool_.size() >= most_loaded_) unload();
  Loaded next{configuration, nullptr};
  try {
    next.engine = load(settings);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::kResource || pool_.empty()) throw;
    most_loaded_ = 1;  // two do not fit
    pool_.clear();
    next.engine = load(settings);
  }
  warm_up(*next.engine);
  return *pool_.emplace_back(std::move(next)).engine;
}

AdviceScore AdviceMeasurer::score(const RunFigures& f) const {
  AdviceScore score{.rate = f.output_rate(), .ttft = f.ttft.p50, .tpot = f.tpot.p50};
  if (!level_.given()) return score;
  score.violation =
      std::max({over(f.ttft.p95, level_.ttft), over(f.tpot.p95, level_.tpot), over(f.e2e.p95, level_.e2e)});
  if (f.completed == 0) score.violation = kWorstViolation;
  return score;
}

void AdviceMeasurer::set_topics(std::vector<AdviceTopic> topics) {
  topics_ = std::move(topics);
  for (Loaded& one : pool_) one.configuration.assign(topics_.size(), 0);
}

PairedScores AdviceMeasurer::compare(const AdviceConfiguration& base, const AdviceConfiguration& other, int rounds) {
  PairedScores pairs;
  for (int round = 0; round < rounds; ++round) {
    const uint64_t number = next_run_++;
    const auto measured = [&](const AdviceConfiguration& mine, const AdviceConfiguration& keep) {
      const std::string command = serve_command(engine_, topics_, mine);
      say(command);
      const RunFigures figures = run(loaded(mine, keep), number);
      if (figures.failed > 0) throw invalid("a request failed with {}", command);
      return score(figures);
    };
    // Which comes first alternates: a machine that slows down or speeds up favours neither.
    const bool base_first = number % 2 == 0;
    if (base_first) pairs.base.push_back(measured(base, other));
    pairs.other.push_back(measured(other, base));
    if (!base_first) pairs.base.push_back(measured(base, other));
  }
  return pairs;
}

void AdviceMeasurer::say(const std::string& what) { progress_.stage("measuring " + what); }

double AdviceMeasurer::divergence(const AdviceConfiguration& configuration) {
  const AdviceSettings settings = advice_settings(engine_, topics_, configuration);
  const std::pair key(settings.engine.activations, settings.engine.kv_cache_dtype);
  if (key == std::pair(engine_.activations, engine_.kv_cache_dtype)) return 0;
  if (const auto known = divergences_.find(key); known != divergences_.end()) return known->second;
  say("the divergence of " + key.first + ", " + key.second);
  try {
    return divergences_[key] = measured_divergence(settings);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::kResource || pool_.empty()) throw;
    pool_.clear();  // to make room
    return divergences_[key] = measured_divergence(settings);
  }
}

double AdviceMeasurer::measured_divergence(const AdviceSettings& settings) {
  const int size = static_cast<int>(text_.size());
  const EngineOptions base_options = one_chunk_at_a_time(engine_, size);
  EngineOptions other_options = base_options;
  other_options.activations = settings.engine.activations;
  other_options.kv_cache_dtype = settings.engine.kv_cache_dtype;
  const auto runtime = std::make_shared<Runtime>(base_options);
  LoadedModel base(base_options, kScoredRows, runtime);
  LoadedModel other(other_options, kScoredRows, runtime);
  SingleSequence of_base(base), of_other(other);
  const size_t first = std::min(kFirstCompared, text_.size() / 4);
  ChunkRun expected(of_base, text_, first), got(of_other, text_, first);
  DistanceTally tally;
  while (const auto rows = expected.next()) {
    const auto theirs = got.next();
    for (size_t i = 0; i < rows->count; ++i) {
      const size_t position = rows->position + i;
      tally.add(rows->row(i), theirs->row(i), text_[position + 1], position);
    }
  }
  const DistanceSummary summary = tally.summary();
  compared_tokens_ = static_cast<int>(summary.tokens);
  if (!std::isfinite(summary.mean_kl.value)) throw invalid("the logits are not finite");
  return summary.mean_kl.value;
}

AdviceMeasures AdviceMeasurer::measures() {
  return {.compare = [this](const AdviceConfiguration& base, const AdviceConfiguration& other,
                            int rounds) { return compare(base, other, rounds); },
          .divergence = [this](const AdviceConfiguration& configuration) { return divergence(configuration); },
          .elapsed = [this] { return elapsed(); }};
}

AdviceStarts AdviceMeasurer::measure_starts(const std::function<void()>& check) {
  progress_.stage("measuring starts");
  pool_.clear();
  const ScratchFolder folder("advise");
  AdviceSettings settings{.engine = engine_};
  settings.engine.pack_cache.clear();
  const auto start = [&] {
    const double seconds = seconds_of([&] { load(settings); });
    check();
    return seconds;
  };
  AdviceStarts starts{.packing = start()};
  settings.engine.pack_cache = folder.path().string();
  start();  // writes it
  starts.mapping = start();
  return starts;
}

}  // namespace quire
