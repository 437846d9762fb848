// Whose turn it is: priorities, and fair shares between tenants.
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
  int priority = 0;      // lower is earlier
  int tenant = 0;
  double tokens = 0;     // what admitting it charges to the tenant
  bool ordered = false;  // order_waiting has given it its place
};

// Every so many admissions the turn is the oldest's, whatever its priority: so nothing waits for ever.
inline constexpr int kOldestEvery = 8;

// The first `count` of `waiting`, which is sorted by arrival, in the order in which they are to be admitted, as
// indices. Lower priorities first; within one, the tenant with the least service (each admission charged as if it had
// happened); within a tenant, first come first. `since_oldest`: admissions since the oldest had its turn. `served` is
// scratch: the tenants' service, changed.
void order_waiting(std::span<Waiting> waiting, std::span<double> served, int since_oldest, size_t count,
                   std::vector<size_t>& order);

// What tenants were served, in tokens: the virtual token counters of Sheng et al., "Fairness in Serving Large Language
// Models" (2024). A tenant who comes back after a pause is lifted to the least of those who stayed, so that nobody
// saves up.
class TenantShares {
 public:
  // A request of the tenant is there until leave(); gives the tenant's number.
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
