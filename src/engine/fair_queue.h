// The order of waiting requests: fair shares between tenants, and priorities within each.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace quire {

// A waiting sequence as the queue sees it.
struct Waiting {
  uint64_t arrival = 0;  // lower came first
  int priority = 0;      // among the tenant's own; lower is earlier
  int tenant = 0;
  double tokens = 0;        // charged to the tenant when it is admitted
  int tenant_priority = 0;  // the operator's; lower is earlier
  bool ordered = false;     // scratch of order_waiting
};

// One in so many admissions goes to the oldest request, whatever its priority, so that none starves.
inline constexpr int kOldestEvery = 8;

// Writes to `order` the indices of the first `count` of `waiting` (sorted by arrival) in the order of admission: lower
// tenant priority first; among those, the tenant that was served least, counting each admission as served; within a
// tenant, lower priority first, then first come, first served. So no tenant can gain on another by the priorities of its
// requests. `since_oldest`: admissions since the oldest had its turn. `served`: by tenant; overwritten.
void order_waiting(std::span<Waiting> waiting, std::span<double> served, int since_oldest, size_t count,
                   std::vector<size_t>& order);

// Tokens served to each tenant: the virtual token counters of Sheng et al., "Fairness in Serving Large Language Models"
// (2024). A tenant that returns after a pause is lifted to the least of the active tenants, so that nobody saves up.
class TenantShares {
 public:
  // Counts a request of the tenant until leave(). Returns the tenant's number.
  int enter(std::string_view tenant);
  void leave(int tenant);
  void charge(int tenant, double tokens) { shares_[static_cast<size_t>(tenant)].served += tokens; }
  void copy_served(std::vector<double>& out) const;  // by tenant number

 private:
  struct Share {
    std::string name;
    int requests = 0;
    double served = 0;
  };
  std::vector<Share> shares_;
  std::unordered_map<std::string, int> numbers_;
  std::vector<int> free_;
};

}  // namespace quire
