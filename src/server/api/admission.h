// Bounds on concurrent work: answers per tenant and in total, and bytes of request bodies and replies.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

namespace quire {

// Who sends a request: the name of the API key, and what the operator says of it.
struct Tenant {
  std::string name;
  int priority = 0;          // Request::tenant_priority
  bool is_operator = false;  // may do what ApiDefinition::for_operators says
};

// Places for answers, running and queued. Thread-safe.
//
// Among several tenants, each may hold as many places as it leaves free (dynamic thresholds, Choudhury and Hahne 1998):
// one tenant alone gets half of them, n busy tenants get 1/(n+1) each, and a newcomer always finds some.
class Admission {
 public:
  explicit Admission(int capacity, bool shared = false) : capacity_(capacity), shared_(shared) {}

  // Whether there are several tenants. A single one may have all places.
  void share(bool shared) {
    const std::lock_guard lock(mutex_);
    shared_ = shared;
  }

  // Lets a request for `answers` in and returns the places it holds, or 0 if it must be refused. A request that is too
  // large for its bound still gets in: among tenants if its tenant holds no place, for half of the free ones; otherwise
  // while half are free, because smaller requests could keep it out forever.
  int enter(const std::string& tenant, int answers) {
    const std::lock_guard lock(mutex_);
    const int free = capacity_ - held_;
    const auto found = tenants_.find(tenant);
    const int own = found == tenants_.end() ? 0 : found->second;
    int places = 0;
    if (shared_) {
      if (own + answers <= free - answers) places = answers;
      if (places == 0 && own == 0) places = std::min(answers, (free + 1) / 2);
    } else if (answers <= capacity_ / 2 ? answers <= free : held_ <= capacity_ / 2) {
      places = answers;
    }
    if (places == 0) return 0;
    tenants_[tenant] = own + places;
    held_ += places;
    answers_ += answers;
    return places;
  }
  void leave(const std::string& tenant, int places, int answers) {
    const std::lock_guard lock(mutex_);
    let_go(tenant, places, answers);
  }
  // Leaves at once, although the engine still has to end the answers within its step: nobody waits for them. Afterwards
  // ended() counts them. False, and nothing has changed, if others are ending and with these they were more than there
  // are places: dropped requests cannot flood the engine.
  bool abandon(const std::string& tenant, int places, int answers) {
    const std::lock_guard lock(mutex_);
    if (ending_ > 0 && ending_ + answers > capacity_) return false;
    ending_ += answers;
    let_go(tenant, places, answers);
    return true;
  }
  void ended(int answers) {
    const std::lock_guard lock(mutex_);
    ending_ -= answers;
  }
  int inside() const {  // answers
    const std::lock_guard lock(mutex_);
    return answers_;
  }
  // Why it does not let a tenant in, for its client.
  std::string refusal(const std::string& tenant) const {
    const std::lock_guard lock(mutex_);
    if (!shared_) return {};
    const auto found = tenants_.find(tenant);
    return fmt::format(
        " for this API key: it holds {} of the {} places, and must leave as many free for other keys as it holds",
        found == tenants_.end() ? 0 : found->second, capacity_);
  }

 private:
  void let_go(const std::string& tenant, int places, int answers) {
    held_ -= places;
    answers_ -= answers;
    if (const auto found = tenants_.find(tenant); found != tenants_.end() && (found->second -= places) == 0) {
      tenants_.erase(found);
    }
  }

  mutable std::mutex mutex_;
  const int capacity_;
  bool shared_;
  int held_ = 0, answers_ = 0;
  int ending_ = 0;                      // abandoned answers
  std::map<std::string, int> tenants_;  // places of each tenant that holds any
};

// A request's admission. Answers leave one by one as they end, all at once when it is abandoned, the rest when this is
// destroyed, so no failure loses a place.
class Places {
 public:
  Places() = default;
  // Takes over what enter() gave.
  Places(std::shared_ptr<Admission> admission, std::string tenant, int places, int answers)
      : admission_(std::move(admission)), tenant_(std::move(tenant)), places_(places), answers_(answers) {}
  Places(Places&& other) noexcept { *this = std::move(other); }
  Places& operator=(Places&& other) noexcept {
    std::swap(admission_, other.admission_);
    std::swap(tenant_, other.tenant_);
    std::swap(places_, other.places_);
    std::swap(answers_, other.answers_);
    std::swap(abandoned_, other.abandoned_);
    return *this;
  }
  ~Places() { leave(answers_); }

  void leave(int answers) {
    if (answers == 0) return;
    answers_ -= answers;
    if (abandoned_) return admission_->ended(answers);
    const int given_back = std::max(0, places_ - answers_);
    places_ -= given_back;
    admission_->leave(tenant_, given_back, answers);
  }
  // As Admission::abandon().
  void abandon() {
    if (answers_ > 0 && !abandoned_) abandoned_ = admission_->abandon(tenant_, places_, answers_);
  }

 private:
  std::shared_ptr<Admission> admission_;
  std::string tenant_;
  int places_ = 0, answers_ = 0;  // places_ <= answers_
  bool abandoned_ = false;
};

// Thread-safe.
class ByteBudget {
 public:
  explicit ByteBudget(size_t bytes) : left_(bytes) {}

  // Succeeds if at least `spared` bytes remain for others.
  bool take(size_t bytes, size_t spared = 0) {
    size_t left = left_.load(std::memory_order_relaxed);
    do {
      if (left < spared || left - spared < bytes) return false;
    } while (!left_.compare_exchange_weak(left, left - bytes, std::memory_order_relaxed));
    return true;
  }
  void give_back(size_t bytes) { left_.fetch_add(bytes, std::memory_order_relaxed); }

 private:
  std::atomic<size_t> left_;
};

}  // namespace quire
