#include "cluster/router.h"

#include <algorithm>
#include <cstddef>

namespace quire {
namespace {

int least_loaded(std::span<const int> loads) {
  return static_cast<int>(std::ranges::min_element(loads) - loads.begin());
}

}  // namespace

void PageHolders::set(PageKey key, int replica, bool held) {
  if (held) {
    holders_[key].push_back(replica);
    return;
  }
  const auto found = holders_.find(key);
  if (found == holders_.end()) return;
  std::erase(found->second, replica);
  if (found->second.empty()) holders_.erase(found);
}

// Whoever has a page has all before it.
PageHolders::Match PageHolders::longest(std::span<const TokenId> pages) const {
  Match match;
  PageKey key;
  for (size_t page = 0; page < pages.size(); ++page) {
    key = chain(key, pages.subspan(page, 1));
    const auto found = holders_.find(key);
    if (found == holders_.end()) break;
    match = {static_cast<int>(page) + 1, found->second};
  }
  return match;
}

int SimulatedRouter::choose(std::span<const int> loads, std::span<const TokenId> prompt_pages,
                            const PageHolders& holders) {
  const auto load = [&](int replica) { return loads[static_cast<size_t>(replica)]; };
  switch (policy_) {
    case RoutingPolicy::kRoundRobin:
      return static_cast<int>(next_++ % loads.size());
    case RoutingPolicy::kPowerOfTwo: {
      const int one = any(loads.size()), other = any(loads.size());
      return load(other) < load(one) ? other : one;
    }
    case RoutingPolicy::kPrefix: {
      const auto [least, most] = std::ranges::minmax(loads);
      if (most - least > prefix_.difference && most > prefix_.ratio * least) break;
      const PageHolders::Match match = holders.longest(prompt_pages);
      if (match.pages == 0 || match.pages < prefix_.least_match * static_cast<double>(prompt_pages.size())) break;
      return std::ranges::min(match.replicas, {}, load);
    }
    case RoutingPolicy::kLeastLoad:
      break;
  }
  return least_loaded(loads);
}

}  // namespace quire
