// NUMA nodes: parts of this machine's memory, each nearer to some cores than to others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

struct hwloc_topology;
struct hwloc_bitmap_s;

namespace quire {

// Nodes [begin, end) of MemoryNodes.
struct NodeRange {
  int begin = 0, end = 0;

  bool operator==(const NodeRange&) const = default;
};

// The nodes of one of `parts` of a computation. Neighbours share a node if there are more parts than nodes; otherwise each part
// has at least one of its own.
NodeRange nodes_of_part(int part, int parts, int nodes);

// The nodes that have memory and cores which this process may use. Left out are memory without cores, and the second memory of cores
// that have two (HBM beside DRAM).
class MemoryNodes {
 public:
  // This machine's. synthetic: of a made-up machine, in hwloc's words ("node:2 core:8 pu:1"), on which nothing is bound.
  explicit MemoryNodes(const char* synthetic = nullptr);

  int size() const { return static_cast<int>(nodes_.size()); }  // at least 1
  int cores(NodeRange range) const;

  // The calling thread runs on these nodes' cores from now on. May fail silently: then threads run anywhere, only slower.
  void run_on(NodeRange range) const;

  // Moves memory to these nodes: whole pages, huge ones where the system has mapped them. Returns 0, or an errno: of EPERM, the
  // container does not allow it (CAP_SYS_NICE).
  int move(std::span<const std::byte> memory, NodeRange range) const;

  // The node of a page that has been touched; -1: the system does not say.
  int node_of(const std::byte* address) const;

  // While it lives, the calling thread runs on these nodes' cores.
  class Visit;

 private:
  using Bitmap = std::unique_ptr<hwloc_bitmap_s, void (*)(hwloc_bitmap_s*)>;
  struct Node {
    unsigned number;  // the system's
    Bitmap cores;
    int physical_cores;
  };
  Bitmap cores_of(NodeRange range) const;

  std::unique_ptr<hwloc_topology, void (*)(hwloc_topology*)> topology_;
  std::vector<Node> nodes_;
};

class MemoryNodes::Visit {
 public:
  Visit(const MemoryNodes* nodes, NodeRange range);  // nullptr: does nothing
  ~Visit();
  Visit(const Visit&) = delete;
  Visit& operator=(const Visit&) = delete;

 private:
  const MemoryNodes* nodes_;
  Bitmap before_;  // null: nothing to restore
};

}  // namespace quire
