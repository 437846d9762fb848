#include "engine/fair_queue.h"

#include <algorithm>
#include <cassert>
#include <limits>
#include <utility>

namespace quire {
namespace {

constexpr size_t kMostTenants = 4096;  // whose shares are kept while they have no requests

// Whose turn it is, the oldest aside: the tenant first, then its request. waiting[oldest] is the first that is left.
size_t next_in_turn(std::span<const Waiting> waiting, std::span<const double> served, size_t oldest) {
  const auto rank = [&](const Waiting& w) {
    return std::pair(w.tenant_priority, served[static_cast<size_t>(w.tenant)]);
  };
  size_t best = oldest;
  for (size_t i = oldest + 1; i < waiting.size(); ++i) {
    if (!waiting[i].ordered && rank(waiting[i]) < rank(waiting[best])) best = i;
  }
  const Waiting& turn = waiting[best];
  for (size_t i = best + 1; i < waiting.size(); ++i) {
    const Waiting& w = waiting[i];
    const bool same = w.tenant == turn.tenant && w.tenant_priority == turn.tenant_priority;
    if (!w.ordered && same && w.priority < waiting[best].priority) best = i;
  }
  return best;
}

}  // namespace

void order_waiting(std::span<Waiting> waiting, std::span<double> served, int since_oldest, size_t count,
                   std::vector<size_t>& order) {
  order.clear();
  const auto service = [&](const Waiting& w) -> double& { return served[static_cast<size_t>(w.tenant)]; };
  size_t oldest = 0;
  while (order.size() < std::min(count, waiting.size())) {
    while (waiting[oldest].ordered) ++oldest;
    const bool oldest_turn = since_oldest + 1 >= kOldestEvery;
    const size_t best = oldest_turn ? oldest : next_in_turn(waiting, served, oldest);
    since_oldest = waiting[best].arrival == waiting[oldest].arrival ? 0 : since_oldest + 1;
    service(waiting[best]) += waiting[best].tokens;
    waiting[best].ordered = true;
    order.push_back(best);
  }
}

int TenantShares::enter(std::string_view tenant) {
  double least = std::numeric_limits<double>::infinity();
  for (const Share& s : shares_) {
    if (s.requests > 0) least = std::min(least, s.served);
  }
  // Allocations come before the name gets a number; free_ has room for leave().
  Share unserved{.name = std::string(tenant), .requests = 0, .served = 0};
  if (free_.empty()) {
    shares_.reserve(shares_.size() + 1);
    free_.reserve(shares_.capacity());
  }
  auto [at, fresh] = numbers_.try_emplace(unserved.name, 0);
  if (fresh) {
    if (free_.empty()) {
      free_.push_back(static_cast<int>(shares_.size()));
      shares_.emplace_back();
    }
    at->second = free_.back();
    free_.pop_back();
    shares_[static_cast<size_t>(at->second)] = std::move(unserved);
  }
  Share& share = shares_[static_cast<size_t>(at->second)];
  if (share.requests++ == 0 && least != std::numeric_limits<double>::infinity())
    share.served = std::max(share.served, least);
  return at->second;
}

void TenantShares::leave(int tenant) {
  Share& share = shares_[static_cast<size_t>(tenant)];
  assert(share.requests > 0);
  if (--share.requests == 0 && numbers_.size() > kMostTenants) {
    numbers_.erase(share.name);
    free_.push_back(tenant);
  }
}

void TenantShares::copy_served(std::vector<double>& out) const {
  out.clear();
  for (const Share& s : shares_) out.push_back(s.served);
}

}  // namespace quire
