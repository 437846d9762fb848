// Chooses replicas as the routers do that are put before Quire (docs/replicas.md). Quire has no router of its own.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <unordered_map>
#include <vector>

#include "cluster/spec.h"
#include "kv/page_key.h"
#include "quire/types.h"

namespace quire {

// Which replicas have which pages, as KV events tell it.
class PageHolders {
 public:
  void set(PageKey key, int replica, bool held);

  // The replicas that have the most of these pages, and how many.
  struct Match {
    int pages = 0;
    std::span<const int> replicas;  // valid until set()
  };
  Match longest(std::span<const TokenId> pages) const;

 private:
  std::unordered_map<PageKey, std::vector<int>, PageKeyHash> holders_;
};

class SimulatedRouter {
 public:
  SimulatedRouter(RoutingPolicy policy, const PrefixRouting& prefix, uint64_t seed)
      : policy_(policy), prefix_(prefix), random_(seed) {}

  // The replica of a prompt. loads: the requests of each replica, at least one. holders: for kPrefix.
  int choose(std::span<const int> loads, std::span<const TokenId> prompt_pages, const PageHolders& holders);

 private:
  int any(size_t count) { return static_cast<int>(random_() % count); }

  const RoutingPolicy policy_;
  const PrefixRouting prefix_;
  std::mt19937_64 random_;
  size_t next_ = 0;
};

}  // namespace quire
