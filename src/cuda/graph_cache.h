// Launches that have run before run as a graph of the device (Device::record()).
#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "cuda/device.h"
#include "cuda/launch.h"

namespace quire::cuda {

class GraphCache {
 public:
  // Of all lists that it keeps: fifty steps of a whole model, or hundreds of single layers. What has not run for longest goes first.
  static constexpr size_t kMostLaunches = 1 << 14;

  // The device must outlive it.
  explicit GraphCache(Device& device) : device_(device) {}

  // Runs them in order, as Device::run(): the second time they are recorded, and from then on they run as a graph. Throws Error
  // (kResource).
  void run(std::span<const Launch> launches);

 private:
  struct Recorded {
    std::vector<Launch> launches;
    std::unique_ptr<Device::Graph> graph;  // nullptr: seen once, or the device has none
  };
  using Entry = std::list<Recorded>::iterator;
  struct Hash {
    size_t operator()(std::span<const Launch> launches) const;
  };
  struct Same {
    bool operator()(std::span<const Launch> a, std::span<const Launch> b) const;
  };

  void keep(std::span<const Launch> launches);

  Device& device_;
  std::list<Recorded> recorded_;                                          // the last used first
  std::unordered_map<std::span<const Launch>, Entry, Hash, Same> known_;  // by the launches of the entry
  size_t kept_ = 0;                                                       // launches of all entries
};

}  // namespace quire::cuda
