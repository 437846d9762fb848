#include "trace/trace_summary.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/text/quote.h"

namespace quire {
namespace {

constexpr std::array<std::string_view, 3> kStepKinds = {"prefill", "mixed", "decode"};
constexpr int64_t kMostSteps = int64_t{1} << 53;
constexpr double kLongestTime = 1e15;  // microseconds
constexpr double kRounding = 1e-6;     // seconds: times are written in thousandths of a microsecond, and added up here

// Times of things by name.
using TimesByName = std::map<std::string, std::vector<float>, std::less<>>;

class TraceTotals {
 public:
  TraceTotals(TraceSummary& summary, size_t slowest) : summary_(summary), slowest_(slowest) {}

  void add(const TraceEvent& event) {
    if (event.category == kStepCategory) return begin_step(event);
    if (event.category == kPhaseCategory) return add_part(event, phases_, phases_of_step_);
    if (event.category == kOperationCategory) return add_part(event, operations_, operations_of_step_);
    if (event.category == kWaitCategory) waited_ += event.seconds;
    if (event.category == kAnswerCategory) add_answer(event);
  }

  void finish() {
    end_step();
    for (const std::string_view kind : kStepKinds) {
      const auto found = std::ranges::find(kinds_, kind, &StepKindTally::kind);
      if (found == kinds_.end()) continue;
      found->times = tally(std::move(step_times_[found->kind]));
      summary_.kinds.push_back(std::move(*found));
    }
    summary_.seconds = summary_.steps > 0 ? last_end_ - first_begin_ : 0;
    for (const std::string_view name : kStepPhaseNames) {
      if (const auto found = phases_.find(name); found != phases_.end())
        summary_.phases.push_back({found->first, tally(std::move(found->second))});
    }
    for (auto& [name, times] : operations_) summary_.operations.push_back({name, tally(std::move(times))});
    std::ranges::sort(summary_.operations, std::greater<>(), [](const NamedTally& n) { return n.times.total; });
    AnswersSummary& answers = summary_.answers;
    answers.unfinished = unfinished_.size();
    answers.queue = tally(std::move(queue_));
    answers.ttft = tally(std::move(ttft_));
    answers.tpot = tally(std::move(tpot_));
    answers.total = tally(std::move(total_));
  }

 private:
  void begin_step(const TraceEvent& event) {
    end_step();
    SlowStep step{.number = static_cast<uint64_t>(event.count("step", kMostSteps)),
                  .kind = event.arguments->get<std::string>("kind"),
                  .began = event.began,
                  .seconds = event.seconds,
                  .sequences = event.count("sequences"),
                  .prompt_rows = event.count("prompt_rows"),
                  .decode_rows = event.count("decode_rows"),
                  .drafts = event.count("drafts")};
    if (std::ranges::find(kStepKinds, step.kind) == kStepKinds.end())
      throw event.arguments->error("the kind of a step must be prefill, mixed or decode, not {}", quote(step.kind));
    if (step.number <= last_number_ || step.began < last_end_ - kRounding)
      throw event.arguments->error("step {} comes after step {}, or begins before that ends", step.number,
                                   last_number_);
    if (summary_.steps == 0) first_begin_ = step.began;
    if (summary_.steps > 0) add_gap(std::max(0.0, step.began - last_end_));
    waited_ = 0;
    ++summary_.steps;
    summary_.step_seconds += step.seconds;
    last_number_ = step.number;
    last_end_ = step.began + step.seconds;
    works_ = event.count("running") + event.count("waiting") > 0;
    auto kind = std::ranges::find(kinds_, step.kind, &StepKindTally::kind);
    if (kind == kinds_.end()) kind = kinds_.insert(kinds_.end(), StepKindTally{.kind = step.kind});
    kind->prompt_rows += step.prompt_rows;
    kind->decode_rows += step.decode_rows;
    kind->drafts += step.drafts;
    kind->tokens += event.count("tokens");
    step_times_[step.kind].push_back(static_cast<float>(step.seconds));
    step_ = std::move(step);
  }

  // Without sequences after the last step, the engine had nothing to do until the next.
  void add_gap(double seconds) {
    const double waited = std::min(waited_, seconds);
    summary_.wait_seconds += waited;
    (works_ ? summary_.gap_seconds : summary_.idle_seconds) += seconds - waited;
  }

  void add_part(const TraceEvent& event, TimesByName& times, std::map<std::string, double>& of_step) {
    if (!step_) throw invalid("the trace has \"{}\" before its first step", event.name);
    times[event.name].push_back(static_cast<float>(event.seconds));
    of_step[event.name] += event.seconds;
  }

  // Keeps the step if it is one of the slowest.
  void end_step() {
    if (!step_) return;
    const bool detailed = !operations_of_step_.empty();
    for (const auto& [name, seconds] : phases_of_step_) {
      if (!detailed || name != kStepPhaseNames[static_cast<size_t>(StepPhase::kForward)])
        step_->parts.emplace_back(name, seconds);
    }
    step_->parts.insert(step_->parts.end(), operations_of_step_.begin(), operations_of_step_.end());
    phases_of_step_.clear();
    operations_of_step_.clear();
    std::vector<SlowStep>& slowest = summary_.slowest;
    const auto place = std::ranges::find_if(slowest, [&](const SlowStep& s) { return s.seconds < step_->seconds; });
    if (slowest.size() < slowest_ || place != slowest.end()) {
      std::ranges::sort(step_->parts, std::greater<>(), &std::pair<std::string, double>::second);
      slowest.insert(place, std::move(*step_));
      if (slowest.size() > slowest_) slowest.pop_back();
    }
    step_.reset();
  }

  void add_answer(const TraceEvent& event) {
    AnswersSummary& answers = summary_.answers;
    if (event.name == kPreemptedName) ++answers.preemptions;
    if (event.name != kFinishedName) {
      unfinished_.insert(event.track);
      return;
    }
    unfinished_.erase(event.track);
    ++answers.finished;
    const int64_t tokens = event.count("tokens");
    ++answers.reasons[printable(event.arguments->at("reason"))];
    const auto time = [&](std::string_view key) { return event.arguments->at(key).number(0, kLongestTime) * 1e-6; };
    const double total = time("total_us");
    answers.tokens += tokens;
    // The answers of a request share its prompt.
    if (event.count("choice") == 0) {
      answers.prompt_tokens += event.count("prompt_tokens");
      answers.cached_tokens += event.count("cached_tokens");
    }
    answers.drafted += event.count("drafted");
    answers.accepted += event.count("accepted");
    queue_.push_back(static_cast<float>(time("queue_us")));
    total_.push_back(static_cast<float>(total));
    if (!event.arguments->has("ttft_us")) return;
    const double ttft = time("ttft_us");
    ttft_.push_back(static_cast<float>(ttft));
    if (tokens > 1) tpot_.push_back(static_cast<float>((total - ttft) / static_cast<double>(tokens - 1)));
  }

  TraceSummary& summary_;
  const size_t slowest_;
  std::optional<SlowStep> step_;  // in progress
  std::map<std::string, double> phases_of_step_, operations_of_step_;
  uint64_t last_number_ = 0;
  double first_begin_ = 0, last_end_ = 0, waited_ = 0;
  bool works_ = false;  // sequences were there after the last step
  std::vector<StepKindTally> kinds_;
  std::map<std::string, std::vector<float>> step_times_;
  TimesByName phases_, operations_;
  std::set<uint64_t> unfinished_;
  std::vector<float> queue_, ttft_, tpot_, total_;
};

}  // namespace

TimeTally tally(std::vector<float> times) {
  TimeTally out{.count = times.size()};
  if (times.empty()) return out;
  std::ranges::sort(times);
  const auto percentile = [&](double share) {
    const auto rank = static_cast<size_t>(std::ceil(share * static_cast<double>(times.size())));
    return static_cast<double>(times[std::max<size_t>(rank, 1) - 1]);
  };
  out.total = std::accumulate(times.begin(), times.end(), 0.0);
  out.mean = out.total / static_cast<double>(times.size());
  out.p50 = percentile(0.5);
  out.p99 = percentile(0.99);
  out.most = static_cast<double>(times.back());
  return out;
}

TraceSummary summarize_trace(const std::string& path, size_t slowest) {
  TraceReader reader(path);
  TraceSummary summary;
  summary.header = reader.header();
  TraceTotals totals(summary, slowest);
  while (const auto event = reader.next()) totals.add(*event);
  totals.finish();
  summary.end = reader.end();
  summary.losses = reader.losses();
  summary.cut_inside_event = reader.cut_inside_event();
  return summary;
}

}  // namespace quire
