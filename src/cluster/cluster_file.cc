#include "cluster/cluster_file.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

#include "base/error.h"
#include "json/field.h"
#include "json/known_fields.h"
#include "quire/engine.h"

namespace quire {
namespace {

constexpr size_t kLargestFile = 1 << 20;
constexpr int kMostRanks = 64, kMostCacheTokens = 1 << 28;
// Rows of logits besides those of the sequences (engine/memory_plan.cc).
constexpr int kPromptLogits = 32;

const std::vector<std::string>& fields_of_file() {
  static const std::vector<std::string> names = {
      "replicas",       "decode_replicas", "tensor_parallel",        "router",
      "prefix_routing", "max_num_seqs",    "max_num_batched_tokens", "tpot_target_ms",
      "ttft_target_ms", "cache_tokens",    "prefix_cache",           "network",
      "rank_link",      "at_once"};
  return names;
}
const std::vector<std::string>& fields_of_link() {
  static const std::vector<std::string> names = {"latency_ms", "gbits_per_second"};
  return names;
}
const std::vector<std::string>& fields_of_routing() {
  static const std::vector<std::string> names = {"least_match", "difference", "ratio"};
  return names;
}

// One value, or a list of them; absent: `usual`.
template <class T, class Read>
std::vector<T> read_list(const JsonField& file, const char* name, T usual, const Read& read) {
  const auto field = file.find(name);
  if (!field) return {usual};
  if (!field->json().is_array()) return {read(*field)};
  std::vector<T> values;
  for (const JsonField& element : field->elements(kMostClusters)) values.push_back(read(element));
  if (values.empty()) throw field->error("must not be empty");
  return values;
}

std::vector<int> read_counts(const JsonField& file, const char* name, int usual, int least, int most) {
  return read_list(file, name, usual, [&](const JsonField& f) { return static_cast<int>(f.integer(least, most)); });
}

RoutingPolicy read_policy(const JsonField& field) {
  const auto* const found = std::ranges::find(kRoutingPolicies, std::string_view(field.string()));
  if (found == std::end(kRoutingPolicies))
    throw field.error("must be one of {}, not {}", fmt::join(kRoutingPolicies, ", "), field.string());
  return static_cast<RoutingPolicy>(found - std::begin(kRoutingPolicies));
}

int read_count(const JsonField& object, const char* name, int usual, int least, int most) {
  const auto field = object.find(name);
  return field ? static_cast<int>(field->integer(least, most)) : usual;
}

double read_number(const JsonField& object, const char* name, double usual, double least, double most) {
  const auto field = object.find(name);
  return field ? field->number(least, most) : usual;
}

NetworkLink read_link(const JsonField& file, const char* name, const NetworkLink& usual) {
  const auto given = file.find(name);
  if (!given) return usual;
  const JsonField object = given->object();
  refuse_unknown_fields(object, "a link", fields_of_link());
  NetworkLink link = usual;
  link.latency = read_number(object, "latency_ms", 1e3 * usual.latency, 0, 1e6) / 1e3;
  if (object.has("gbits_per_second")) link.bandwidth = object.at("gbits_per_second").number(1e-3, 1e6) * 1e9 / 8;
  return link;
}

PrefixRouting read_routing(const JsonField& file, PrefixRouting routing) {
  const auto given = file.find("prefix_routing");
  if (!given) return routing;
  const JsonField object = given->object();
  refuse_unknown_fields(object, "prefix_routing", fields_of_routing());
  routing.least_match = read_number(object, "least_match", routing.least_match, 0, 1);
  routing.difference = read_count(object, "difference", routing.difference, 0, 1'000'000'000);
  routing.ratio = read_number(object, "ratio", routing.ratio, 1, 1e9);
  return routing;
}

// What is the same in all clusters of the file.
ClusterSpec read_common(const JsonField& file, ClusterSpec spec) {
  SchedulerLimits& limits = spec.limits;
  limits.max_running = read_count(file, "max_num_seqs", limits.max_running, 1, kMaxNumSeqs);
  limits.max_rows = read_count(file, "max_num_batched_tokens", std::max(limits.max_rows, limits.max_running),
                               limits.max_running, kMaxNumBatchedTokens);
  limits.max_logits = limits.max_running + kPromptLogits;
  limits.tpot_target = read_number(file, "tpot_target_ms", 1e3 * limits.tpot_target, 1e-3, 1e9) / 1e3;
  limits.ttft_target = read_number(file, "ttft_target_ms", 1e3 * limits.ttft_target, 1e-3, 1e9) / 1e3;
  spec.cache_tokens = read_count(file, "cache_tokens", spec.cache_tokens, 1, kMostCacheTokens);
  spec.prefix_cache = file.get_or("prefix_cache", spec.prefix_cache);
  spec.at_once = read_number(file, "at_once", spec.at_once, 1, 2 * kMostReplicas);
  spec.prefix = read_routing(file, spec.prefix);
  spec.network = read_link(file, "network", spec.network);
  spec.rank_link = read_link(file, "rank_link", spec.rank_link);
  return spec;
}

}  // namespace

std::vector<ClusterSpec> read_clusters(const std::string& name, const ClusterSpec& base) {
  const JsonField file = JsonField::read(name, kLargestFile).object();
  refuse_unknown_fields(file, "a cluster", fields_of_file());
  const auto replicas = read_counts(file, "replicas", base.replicas, 1, kMostReplicas);
  const auto decoders = read_counts(file, "decode_replicas", base.decoders, 0, kMostReplicas);
  const auto ranks = read_counts(file, "tensor_parallel", base.ranks, 1, kMostRanks);
  const auto policies = read_list(file, "router", base.policy, read_policy);
  if (const size_t count = replicas.size() * decoders.size() * ranks.size() * policies.size(); count > kMostClusters)
    throw file.error("has {} combinations; at most {} are simulated at a time", count, kMostClusters);
  ClusterSpec spec = read_common(file, base);
  std::vector<ClusterSpec> specs;
  for (const int r : replicas) {
    for (const int d : decoders) {
      for (const int n : ranks) {
        for (const RoutingPolicy policy : policies) {
          spec.replicas = r;
          spec.decoders = d;
          spec.ranks = n;
          spec.policy = policy;
          specs.push_back(spec);
        }
      }
    }
  }
  return specs;
}

}  // namespace quire
