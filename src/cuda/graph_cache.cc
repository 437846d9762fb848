#include "cuda/graph_cache.h"

#include <algorithm>
#include <cstdint>

#include "base/files/checksum.h"

namespace quire::cuda {

size_t GraphCache::Hash::operator()(std::span<const Launch> launches) const {
  uint64_t hash = launches.size();
  const auto add = [&](uint64_t part) { hash = (hash ^ part) * 0x9E3779B97F4A7C15; };
  for (const Launch& launch : launches) {
    add(checksum(std::as_bytes(std::span(&launch.shape, 1))));
    add(reinterpret_cast<uintptr_t>(launch.entry));
    add(checksum(std::span(launch.kernel).first(launch.entry->bytes)));
  }
  return hash;
}

bool GraphCache::Same::operator()(std::span<const Launch> a, std::span<const Launch> b) const {
  return std::ranges::equal(a, b);
}

void GraphCache::run(std::span<const Launch> launches) {
  if (launches.size() > kMostLaunches) return device_.run(launches);
  const auto known = known_.find(launches);
  if (known == known_.end()) {
    device_.run(launches);
    keep(launches);
    return;
  }
  recorded_.splice(recorded_.begin(), recorded_, known->second);
  Recorded& recorded = recorded_.front();
  if (!recorded.graph) recorded.graph = device_.record(launches);
  if (recorded.graph) {
    device_.run(*recorded.graph);
  } else {
    device_.run(launches);
  }
}

void GraphCache::keep(std::span<const Launch> launches) {
  std::list<Recorded> added;
  added.push_back({{launches.begin(), launches.end()}, nullptr});
  for (; kept_ + launches.size() > kMostLaunches; recorded_.pop_back()) {
    const std::vector<Launch>& oldest = recorded_.back().launches;
    kept_ -= oldest.size();
    known_.erase(oldest);
  }
  known_.emplace(added.front().launches, added.begin());
  recorded_.splice(recorded_.begin(), added);
  kept_ += launches.size();
}

}  // namespace quire::cuda
