#include "base/memory_nodes.h"

#include <hwloc.h>

#include <algorithm>
#include <cerrno>

#include "base/error.h"

namespace quire {

NodeRange nodes_of_part(int part, int parts, int nodes) {
  const auto first = [&](int i) { return static_cast<int>(int64_t{nodes} * i / parts); };
  return {first(part), std::max(first(part) + 1, first(part + 1))};
}

MemoryNodes::MemoryNodes(const char* synthetic) : topology_(nullptr, hwloc_topology_destroy) {
  hwloc_topology_t topology = nullptr;
  if (hwloc_topology_init(&topology) != 0) throw no_resource("cannot read this machine's NUMA nodes: no memory");
  topology_.reset(topology);
  if (synthetic) hwloc_topology_set_synthetic(topology, synthetic);
  if (hwloc_topology_load(topology) != 0) throw no_resource("cannot read this machine's NUMA nodes; use --numa off");
  for (hwloc_obj_t node = nullptr; (node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node));) {
    const bool same_cores =
        std::ranges::any_of(nodes_, [&](const Node& n) { return hwloc_bitmap_isequal(n.cores.get(), node->cpuset); });
    if (hwloc_bitmap_iszero(node->cpuset) || same_cores) continue;
    nodes_.push_back({node->os_index,
                      {hwloc_bitmap_dup(node->cpuset), hwloc_bitmap_free},
                      hwloc_get_nbobjs_inside_cpuset_by_type(topology, node->cpuset, HWLOC_OBJ_CORE)});
  }
  if (nodes_.empty()) {
    const hwloc_const_cpuset_t all = hwloc_topology_get_allowed_cpuset(topology);
    nodes_.push_back(
        {0, {hwloc_bitmap_dup(all), hwloc_bitmap_free}, hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE)});
  }
}

int MemoryNodes::cores(NodeRange range) const {
  int cores = 0;
  for (int i = range.begin; i < range.end; ++i) cores += nodes_[static_cast<size_t>(i)].physical_cores;
  return cores;
}

MemoryNodes::Bitmap MemoryNodes::cores_of(NodeRange range) const {
  Bitmap all(hwloc_bitmap_alloc(), hwloc_bitmap_free);
  for (int i = range.begin; i < range.end; ++i)
    hwloc_bitmap_or(all.get(), all.get(), nodes_[static_cast<size_t>(i)].cores.get());
  return all;
}

void MemoryNodes::run_on(NodeRange range) const {
  hwloc_set_cpubind(topology_.get(), cores_of(range).get(), HWLOC_CPUBIND_THREAD);
}

int MemoryNodes::move(std::span<const std::byte> memory, NodeRange range) const {
  const Bitmap numbers(hwloc_bitmap_alloc(), hwloc_bitmap_free);
  for (int i = range.begin; i < range.end; ++i) hwloc_bitmap_set(numbers.get(), nodes_[static_cast<size_t>(i)].number);
  const auto bind = [&](hwloc_membind_policy_t policy, int flags) {
    return hwloc_set_area_membind(topology_.get(), memory.data(), memory.size(), numbers.get(), policy,
                                  flags | HWLOC_MEMBIND_BYNODESET);
  };
  if (bind(HWLOC_MEMBIND_BIND, HWLOC_MEMBIND_MIGRATE) != 0) return errno;
  // The pages stay. Without a policy of their own, the parts of a mapping are one again: a process has few mappings.
  return bind(HWLOC_MEMBIND_DEFAULT, 0) != 0 ? errno : 0;
}

int MemoryNodes::node_of(const std::byte* address) const {
  const Bitmap numbers(hwloc_bitmap_alloc(), hwloc_bitmap_free);
  if (hwloc_get_area_memlocation(topology_.get(), address, 1, numbers.get(), HWLOC_MEMBIND_BYNODESET) != 0) return -1;
  const auto node =
      std::ranges::find_if(nodes_, [&](const Node& n) { return hwloc_bitmap_isset(numbers.get(), n.number) != 0; });
  return node == nodes_.end() ? -1 : static_cast<int>(node - nodes_.begin());
}

MemoryNodes::Visit::Visit(const MemoryNodes* nodes, NodeRange range)
    : nodes_(nodes), before_(nullptr, hwloc_bitmap_free) {
  if (!nodes_) return;
  before_.reset(hwloc_bitmap_alloc());
  if (hwloc_get_cpubind(nodes_->topology_.get(), before_.get(), HWLOC_CPUBIND_THREAD) != 0) before_.reset();
  nodes_->run_on(range);
}

MemoryNodes::Visit::~Visit() {
  if (before_) hwloc_set_cpubind(nodes_->topology_.get(), before_.get(), HWLOC_CPUBIND_THREAD);
}

}  // namespace quire
