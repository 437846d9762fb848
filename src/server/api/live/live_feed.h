// The stream of the dashboard: snapshots of the engine as server-sent events, made once for all readers.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "server/api/admission.h"
#include "server/api/service.h"
#include "server/api/service_lease.h"

namespace quire {

// One event, framed for HTTP. Readers share it while they send it.
class LiveEvent {
 public:
  LiveEvent(std::string_view json, uint64_t number);
  ~LiveEvent() {
    if (budget_) budget_->give_back(chunk_.size());
  }
  LiveEvent(const LiveEvent&) = delete;
  LiveEvent& operator=(const LiveEvent&) = delete;

  // Takes its bytes from the budget, which must outlive it. false: there are too few. Call once.
  bool hold(ByteBudget& budget) {
    if (budget.take(chunk_.size())) budget_ = &budget;
    return budget_ != nullptr;
  }

  uint64_t number() const { return number_; }        // EngineSnapshot::number
  std::string_view chunk() const { return chunk_; }  // with the frame of a chunked body
  std::string_view event() const { return std::string_view(chunk_).substr(begin_, size_); }  // without

 private:
  const uint64_t number_;
  size_t begin_ = 0, size_ = 0;
  std::string chunk_;
  ByteBudget* budget_ = nullptr;
};

struct LiveFeedLimits {
  std::chrono::milliseconds interval{200};  // between events, at least
  std::chrono::milliseconds idle{500};      // likewise, while the engine has nothing to do
  size_t most_readers = 256;
  size_t most_bytes = size_t{8} << 20;     // of all events that are being sent
  double most_bytes_per_second = 1 << 20;  // to all readers together; more readers get fewer events
};

// Thread-safe. Asks the engine for snapshots only while there are readers. A reader that is slow misses events; whatever
// readers do, memory stays within the limits.
class LiveFeed {
 public:
  using Clock = std::chrono::steady_clock;

  // watched: the model to show now; empty: none is loaded, and readers wait.
  explicit LiveFeed(std::function<ServiceLease()> watched, LiveFeedLimits limits = {});

  // A reader's place. The feed must outlive it.
  class Reader {
   public:
    explicit Reader(LiveFeed& feed) : feed_(&feed) {}
    Reader(Reader&& other) noexcept : feed_(std::exchange(other.feed_, nullptr)) {}
    Reader& operator=(Reader&& other) noexcept {
      std::swap(feed_, other.feed_);
      return *this;
    }
    ~Reader() {
      if (feed_) feed_->leave();
    }

   private:
    LiveFeed* feed_;
  };
  // Nothing: there are most_readers already.
  std::optional<Reader> join();

  // What a reader gets that has had the event `seen`; 0: none yet. An event says what changed since the one before it, so a
  // reader that has missed one gets a whole one again.
  struct Next {
    std::shared_ptr<const LiveEvent> event;  // null: nothing new yet
    Clock::time_point again;                 // when to ask next
  };
  Next next(uint64_t seen, Clock::time_point now = Clock::now());

  // True once: when the engine is idle, so that its machine's multiply rate can be measured. Then call measure(), on a
  // thread that may be kept busy for 0.1 s.
  bool wants_measurement();
  void measure();

  size_t readers() const;

 private:
  void leave();
  void take_snapshot(Clock::time_point now);
  std::shared_ptr<const LiveEvent> make_event(uint64_t after);

  const std::function<ServiceLease()> watched_;
  const LiveFeedLimits limits_;
  ByteBudget budget_;
  mutable std::mutex mutex_;
  size_t readers_ = 0;
  size_t model_ = 0;  // that is shown
  std::string name_;
  ModelInfo info_;
  int max_running_ = 0;
  double read_bandwidth_ = 0;
  EngineSnapshot newest_;
  EngineStats stats_;                      // of that time
  uint64_t stale_ = 0;                     // number of the engine's snapshot when the first reader came
  uint64_t before_ = 0, step_before_ = 0;  // numbers of the snapshot before it, and of its last step
  // Its events, made when the first reader needs them: for those that had the one before, and for all others.
  std::shared_ptr<const LiveEvent> changes_, whole_;
  bool no_room_ = false;     // for an event of the newest snapshot
  Clock::time_point due_{};  // when to take the next snapshot
  bool idle_ = false;        // the engine, at the time of the newest snapshot
  bool measured_ = false;    // or about to be
  double multiply_rate_ = 0;
};

}  // namespace quire
