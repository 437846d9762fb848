#include "cluster/simulate.h"

#include <memory>
#include <queue>
#include <utility>

#include "cluster/prompt_pages.h"
#include "cluster/replica.h"
#include "cluster/router.h"
#include "cluster/step_clock.h"
#include "quire/types.h"

namespace quire {
namespace {

constexpr int64_t kMostPages = int64_t{1} << 22;

struct Event {
  enum class Kind { kArrival, kDelivery };  // at the router; at a replica
  double at = 0;
  uint64_t number = 0;  // orders events of the same time
  Kind kind = Kind::kArrival;
  size_t request = 0;

  bool operator>(const Event& other) const { return std::pair{at, number} > std::pair{other.at, other.number}; }
};

class Simulation {
 public:
  Simulation(const ClusterSpec& spec, const SimulationInputs& inputs)
      : spec_(spec), inputs_(inputs), router_(spec.policy, spec.prefix, inputs.workload.seed), steps_(spec.at_once) {
    const ReplicaOptions options{.limits = spec.limits,
                                 .page_tokens = inputs.page_tokens,
                                 .pages = spec.cache_tokens / inputs.page_tokens,
                                 .prefix_cache = spec.prefix_cache};
    for (int i = 0; i < spec.replicas + spec.decoders; ++i) {
      PageListener listener;
      if (spec.policy == RoutingPolicy::kPrefix && i < spec.replicas)
        listener = [this, i](PageKey key, bool held) { holders_.set(key, i, held); };
      replicas_.push_back(std::make_unique<SimulatedReplica>(options, inputs.step, std::move(listener)));
    }
    result_.requests.resize(inputs.workload.requests.size());
    jobs_.resize(result_.requests.size());
    places_.resize(result_.requests.size());
  }

  SimulationResult run() && {
    const auto& requests = inputs_.workload.requests;
    for (size_t i = 0; i < requests.size(); ++i) push(requests[i].at, Event::Kind::kArrival, i);
    while (!events_.empty() || !steps_.empty()) {
      if (!steps_.empty() && (events_.empty() || steps_.next() < events_.top().at)) {
        now_ = steps_.next();
        end_step(steps_.end(now_));
        continue;
      }
      const Event event = events_.top();
      events_.pop();
      now_ = event.at;
      if (event.kind == Event::Kind::kArrival) {
        arrive(event.request);
      } else {
        const size_t place = places_[event.request];
        replicas_[place]->submit(std::move(jobs_[event.request]), now_);
        begin_step(place);
      }
    }
    for (const auto& replica : replicas_) {
      result_.busy.push_back(replica->busy_seconds());
      result_.steps += replica->steps();
      result_.preemptions += replica->preemptions();
    }
    return std::move(result_);
  }

 private:
  void push(double at, Event::Kind kind, size_t request) { events_.push({at, ++events_made_, kind, request}); }
  const PlannedRequest& planned(size_t request) const { return inputs_.workload.requests[request]; }
  bool splits(size_t request) const { return spec_.decoders > 0 && planned(request).output_tokens > 1; }

  // Requests at each of `count` replicas, with those on their way.
  std::span<const int> loads(int first, int count) {
    loads_.resize(replicas_.size());
    return std::span(loads_).subspan(static_cast<size_t>(first), static_cast<size_t>(count));
  }

  void send(size_t request, int place, double seconds) {
    places_[request] = static_cast<size_t>(place);
    ++loads_[static_cast<size_t>(place)];
    push(now_ + seconds, Event::Kind::kDelivery, request);
  }

  void arrive(size_t request) {
    const PlannedRequest& r = planned(request);
    result_.requests[request].arrived = now_;
    const auto pieces = prompt_pieces(inputs_.workload, request);
    const int answer = splits(request) ? 1 : r.output_tokens;
    jobs_[request] = {.request = request,
                      .prompt = r.input_tokens,
                      .answer = answer,
                      .pages = page_contents(pieces, request, answer, inputs_.page_tokens)};
    const auto prompt = static_cast<size_t>(r.input_tokens / inputs_.page_tokens);
    const int place = router_.choose(loads(0, spec_.replicas), std::span(jobs_[request].pages).first(prompt), holders_);
    result_.requests[request].replica = place;
    send(request, place, spec_.network.latency);
  }

  void begin_step(size_t replica) {
    if (replicas_[replica]->stepping()) return;
    if (const auto seconds = replicas_[replica]->begin_step(now_)) steps_.begin(now_, *seconds, replica);
  }

  void end_step(const StepClock::Ended& step) {
    progress_.clear();
    replicas_[step.replica]->end_step(step.seconds, progress_);
    for (const JobProgress& p : progress_) take(p, step.replica);
    begin_step(step.replica);
  }

  void take(const JobProgress& p, size_t replica) {
    SimulatedRequest& request = result_.requests[p.request];
    const double seen = now_ + spec_.network.latency;  // by the client
    const bool second_part = replica >= static_cast<size_t>(spec_.replicas);
    switch (p.kind) {
      case JobProgress::Kind::kStarted:
        if (!second_part) request.cached_tokens = p.cached_tokens;
        break;
      case JobProgress::Kind::kFirstToken:
        if (!second_part) request.first_token = seen;
        break;
      case JobProgress::Kind::kFinished:
        --loads_[replica];
        if (!second_part && splits(p.request)) return hand_over(p.request);
        request.finished = seen;
        result_.seconds = std::max(result_.seconds, seen);
        break;
    }
  }

  // The prompt and the first token are computed; a decoder takes the pages and goes on.
  void hand_over(size_t request) {
    const PlannedRequest& r = planned(request);
    jobs_[request] = {
        .request = request, .prompt = r.input_tokens + 1, .answer = r.output_tokens - 1, .received = r.input_tokens};
    const std::span<const int> decoders = loads(spec_.replicas, spec_.decoders);
    const auto place = static_cast<int>(std::ranges::min_element(decoders) - decoders.begin());
    send(request, spec_.replicas + place, spec_.network.seconds(inputs_.token_bytes * r.input_tokens));
  }

  const ClusterSpec& spec_;
  const SimulationInputs& inputs_;
  SimulatedRouter router_;
  PageHolders holders_;
  std::vector<std::unique_ptr<SimulatedReplica>> replicas_;
  std::vector<SimulatedJob> jobs_;  // by request, on their way
  std::vector<size_t> places_;      // by request: the replica that has it
  std::vector<int> loads_;          // by replica: requests
  StepClock steps_;                 // under way
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::vector<JobProgress> progress_;
  SimulationResult result_;
  double now_ = 0;
  uint64_t events_made_ = 0;
};

}  // namespace

SimulationResult simulate_cluster(const ClusterSpec& spec, const SimulationInputs& inputs) {
  return Simulation(spec, inputs).run();
}

int simulated_page_tokens(const ClusterSpec& spec) {
  int tokens = 16;
  while (int64_t{spec.replicas + spec.decoders} * (spec.cache_tokens / tokens) > kMostPages) tokens *= 2;
  return tokens;
}

}  // namespace quire
