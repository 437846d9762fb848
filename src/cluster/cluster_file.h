// The file of `quire plan --cluster`: which clusters to simulate.
#pragma once

#include <string>
#include <vector>

#include "cluster/spec.h"

namespace quire {

// A JSON object; docs/cluster.md has its fields. Some may be lists: the result has every combination, at most
// kMostClusters, in the order of the fields. `base` has what the file does not say. Throws Error that names the field.
inline constexpr size_t kMostClusters = 256;
inline constexpr int kMostReplicas = 1000;
std::vector<ClusterSpec> read_clusters(const std::string& file, const ClusterSpec& base);

}  // namespace quire
