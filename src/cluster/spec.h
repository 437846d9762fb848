// A cluster as a simulation sees it: replicas of a server, and a router before them.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

#include "engine/scheduler.h"

namespace quire {

// How a router chooses the replica of a request.
enum class RoutingPolicy {
  kRoundRobin,  // one after the other
  kLeastLoad,   // the one with the fewest requests
  kPowerOfTwo,  // of two chosen at random, the one with fewer requests
  kPrefix,      // the one whose cache has the most of the prompt, if loads are balanced
};
inline constexpr std::string_view kRoutingPolicies[] = {"round_robin", "least_load", "power_of_two", "prefix"};

struct NetworkLink {
  double latency = 0;                                          // seconds, one way
  double bandwidth = std::numeric_limits<double>::infinity();  // bytes per second

  double seconds(double bytes) const { return latency + bytes / bandwidth; }
};

// When a router follows the cache: the rules and defaults of SGLang's router (sgl-model-gateway, policies/cache_aware.rs).
struct PrefixRouting {
  double least_match = 0.3;  // part of the prompt that must be cached; otherwise the least load decides
  // Loads are balanced unless the most exceeds the least by more than `difference` requests and by more than `ratio` times.
  int difference = 64;
  double ratio = 1.5;
};

struct ClusterSpec {
  int replicas = 1;
  // Above 0: the replicas compute prompts only, and so many further ones the answers. The pages of a prompt go over the
  // network in between.
  int decoders = 0;
  int ranks = 1;  // of each replica (tensor parallelism): so many machines
  // Of replicas and decoders, how many compute at full speed at the same time: less than all if they share machines.
  double at_once = std::numeric_limits<double>::infinity();
  RoutingPolicy policy = RoutingPolicy::kRoundRobin;
  PrefixRouting prefix;
  SchedulerLimits limits;
  int cache_tokens = 0;  // that the KV cache of a replica holds
  bool prefix_cache = true;
  NetworkLink network;    // between router and replicas, and between replicas
  NetworkLink rank_link;  // between the ranks of a replica

  int machines() const {
    const double together = std::min(static_cast<double>(replicas + decoders), at_once);
    return static_cast<int>(std::ceil(together)) * ranks;
  }
};

}  // namespace quire
