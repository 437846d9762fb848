// When the steps of replicas end that share machines.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

namespace quire {

// Steps under way run at full speed as long as there are at most `at_once`; of more each has an equal share of that. So all have
// the same speed, and the clock counts the seconds of work that a step would have done that was always under way.
class StepClock {
 public:
  explicit StepClock(double at_once) : at_once_(at_once) {}

  // A step that takes so many seconds at full speed. now: not before any earlier call's.
  void begin(double now, double seconds, size_t replica) {
    advance(now);
    steps_.push({work_ + seconds, ++begun_, replica, now});
  }
  bool empty() const { return steps_.empty(); }
  // When the next one ends, if no other begins before. Not if it is empty.
  double next() const { return now_ + std::max(0.0, steps_.top().until - work_) / speed(); }
  struct Ended {
    size_t replica;
    double seconds;  // that the step took
  };
  // Ends it, at the time `now`.
  Ended end(double now) {
    const Step step = steps_.top();
    advance(now);
    work_ = step.until;  // which it is, but for rounding
    steps_.pop();
    return {step.replica, now - step.began};
  }

 private:
  struct Step {
    double until = 0;     // of work_
    uint64_t number = 0;  // orders steps that end at the same time
    size_t replica = 0;
    double began = 0;
    bool operator>(const Step& other) const { return std::pair{until, number} > std::pair{other.until, other.number}; }
  };

  double speed() const { return std::min(1.0, at_once_ / static_cast<double>(steps_.size())); }
  void advance(double now) {
    if (!steps_.empty()) work_ += (now - now_) * speed();
    now_ = now;
  }

  const double at_once_;
  std::priority_queue<Step, std::vector<Step>, std::greater<>> steps_;
  double now_ = 0, work_ = 0;
  uint64_t begun_ = 0;
};

}  // namespace quire
