#include "server/api/live/live_feed.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <exception>

#include "server/api/live/snapshot_json.h"

namespace quire {
namespace {

constexpr std::chrono::milliseconds kRetry{25};  // while the engine has not published what it was asked for

}  // namespace

LiveEvent::LiveEvent(std::string_view json, uint64_t number) : number_(number) {
  constexpr std::string_view kField = "data: ", kEnd = "\n\n";
  size_ = kField.size() + json.size() + kEnd.size();
  chunk_ = fmt::format("{:x}\r\n", size_);
  begin_ = chunk_.size();
  chunk_.reserve(begin_ + size_ + 2);
  chunk_.append(kField).append(json).append(kEnd).append("\r\n");
}

LiveFeed::LiveFeed(std::function<ServiceLease()> watched, LiveFeedLimits limits)
    : watched_(std::move(watched)), limits_(limits), budget_(limits.most_bytes) {}

std::optional<LiveFeed::Reader> LiveFeed::join() {
  const std::lock_guard lock(mutex_);
  if (readers_ >= limits_.most_readers) return std::nullopt;
  if (readers_++ == 0) {  // what the engine did when somebody watched last is of no interest
    const ServiceLease service = watched_();
    stale_ = service ? service->snapshot().number : 0;
    model_ = service.model;
    newest_ = {};
    due_ = Clock::now() + kRetry;
  }
  return Reader(*this);
}

void LiveFeed::leave() {
  const std::lock_guard lock(mutex_);
  assert(readers_ > 0);
  if (--readers_ > 0) return;
  changes_ = whole_ = nullptr;
  newest_ = {};
}

size_t LiveFeed::readers() const {
  const std::lock_guard lock(mutex_);
  return readers_;
}

LiveFeed::Next LiveFeed::next(uint64_t seen, Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  if (now >= due_) take_snapshot(now);
  if (newest_.number == 0 || newest_.number == seen) return {nullptr, due_};
  const bool follows = seen != 0 && seen == before_;
  std::shared_ptr<const LiveEvent>& event = follows ? changes_ : whole_;
  if (!event && !no_room_) {
    event = make_event(follows ? step_before_ : 0);
    no_room_ = !event;
  }
  return {event, std::max(due_, now + kRetry)};
}

void LiveFeed::take_snapshot(Clock::time_point now) {
  const ServiceLease service = watched_();
  due_ = now + (service ? kRetry : limits_.idle);
  if (!service) return;
  EngineSnapshot snapshot = service->snapshot();
  if (service.model != std::exchange(model_, service.model) || snapshot.number < newest_.number) {
    newest_ = {};  // another engine, which counts from the beginning
    stale_ = 0;
  }
  if (snapshot.number == newest_.number || snapshot.number == stale_) return;
  const size_t last_bytes = changes_ ? changes_->chunk().size() : 0;
  const uint64_t last_step = newest_.steps.empty() ? 0 : newest_.steps.back().number;
  before_ = newest_.number;
  step_before_ = last_step;
  newest_ = std::move(snapshot);
  stats_ = service->stats();
  name_ = service->names().front();
  info_ = service->model();
  max_running_ = service->options().max_running;
  read_bandwidth_ = service->read_bandwidth();
  changes_ = whole_ = nullptr;  // readers that are still sending them keep them
  no_room_ = false;
  idle_ = newest_.running + newest_.waiting == 0 && (newest_.steps.empty() || newest_.steps.back().number == last_step);
  const std::chrono::duration<double> spread(static_cast<double>(readers_ * last_bytes) /
                                             limits_.most_bytes_per_second);
  due_ = now + std::max<Clock::duration>(idle_ ? limits_.idle : limits_.interval,
                                         std::chrono::duration_cast<Clock::duration>(spread));
}

bool LiveFeed::wants_measurement() {
  const std::lock_guard lock(mutex_);
  if (measured_ || !idle_) return false;
  measured_ = true;
  return true;
}

void LiveFeed::measure() {
  try {
    const ServiceLease service = watched_();
    const double rate = service ? service->measure_multiply_rate() : 0;
    const std::lock_guard lock(mutex_);
    multiply_rate_ = rate;
  } catch (const std::exception&) {
    // Without threads or memory for it, the limit stays unknown.
  }
}

// Nothing if readers still send so many events that this one has no room.
std::shared_ptr<const LiveEvent> LiveFeed::make_event(uint64_t after) {
  const WatchedModel model{.name = name_,
                           .info = info_,
                           .max_running = max_running_,
                           .read_bandwidth = read_bandwidth_,
                           .multiply_rate = multiply_rate_};
  const std::string json = snapshot_json(newest_, stats_, model, after);
  auto event = std::make_shared<LiveEvent>(json, newest_.number);
  return event->hold(budget_) ? event : nullptr;
}

}  // namespace quire
