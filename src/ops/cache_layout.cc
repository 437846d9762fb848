#include "ops/cache_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "kernels/kernels.h"
#include "ops/communicator.h"

namespace quire {
namespace {

// Units larger than their group's layers waste memory; many small groups cost page tables and shorter reads.
constexpr double kMostWaste = 1.0 / 16;

// The layers of each window, cut in order into groups of at most `unit` bytes. Windowless layers come first.
std::vector<CacheLayout::Group> cut(const std::map<int, std::vector<int>>& by_window, std::span<const size_t> bytes,
                                    size_t unit) {
  std::vector<CacheLayout::Group> groups;
  for (const auto& [window, layers] : by_window) {
    size_t used = unit;
    for (const int layer : layers) {
      const size_t size = bytes[static_cast<size_t>(layer)];
      if (used + size > unit) {
        groups.push_back({window, {}});
        used = 0;
      }
      groups.back().layers.push_back(layer);
      used += size;
    }
  }
  return groups;
}

}  // namespace

size_t page_bytes(KvType type, const LayerCache& layer) {
  return static_cast<size_t>(layer.kv_heads) * kv_head_bytes(type, layer.key_dim, layer.value_dim);
}

CacheLayout::CacheLayout(KvType type, std::vector<LayerCache> layers)
    : type_(type), layers_(std::move(layers)), group_of_(layers_.size(), -1), offset_of_(layers_.size(), 0) {
  std::map<int, std::vector<int>> by_window;
  std::vector<size_t> bytes(layers_.size());
  size_t total = 0, largest = 0;
  for (size_t i = 0; i < layers_.size(); ++i) {
    const LayerCache& layer = layers_[i];
    if (layer.kind == LayerCache::Kind::kState) {
      offset_of_[i] = state_bytes_;
      state_bytes_ += layer.state_bytes;
    }
    if (layer.kind != LayerCache::Kind::kKeysValues) continue;
    bytes[i] = page_bytes(type, layer);
    by_window[layer.window].push_back(static_cast<int>(i));
    total += bytes[i];
    largest = std::max(largest, bytes[i]);
  }
  // Candidates: what the first n layers of a window need. The fewest groups that waste little, else the least waste.
  double least = 0;
  for (const auto& [window, of_window] : by_window) {
    size_t unit = 0;
    for (const int layer : of_window) {
      unit += bytes[static_cast<size_t>(layer)];
      if (unit < largest) continue;
      std::vector<Group> groups = cut(by_window, bytes, unit);
      const double waste = static_cast<double>(groups.size() * unit) / static_cast<double>(total) - 1;
      const bool better = groups_.empty() ||
                          (waste <= kMostWaste && least <= kMostWaste ? groups.size() < groups_.size() : waste < least);
      if (!better) continue;
      least = waste;
      unit_bytes_ = unit;
      groups_ = std::move(groups);
    }
  }
  place_layers();
}

// The offsets of the groups' layers. A unit is at least as large as the largest group.
void CacheLayout::place_layers() {
  for (size_t g = 0; g < groups_.size(); ++g) {
    size_t offset = 0;
    for (const int layer : groups_[g].layers) {
      const auto i = static_cast<size_t>(layer);
      group_of_[i] = static_cast<int>(g);
      offset_of_[i] = offset;
      offset += page_bytes(type_, layers_[i]);
    }
    unit_bytes_ = std::max(unit_bytes_, offset);
  }
}

CacheLayout CacheLayout::of_rank(int rank, int ranks) const {
  CacheLayout part = *this;
  if (ranks == 1) return part;
  for (LayerCache& layer : part.layers_) {
    if (layer.kind != LayerCache::Kind::kKeysValues || layer.kv_heads < ranks) continue;
    const Share heads = share_of(layer.kv_heads, rank, ranks);
    layer.model_kv_heads = layer.kv_heads;
    layer.first_kv_head = heads.begin;
    layer.kv_heads = heads.size();
  }
  part.unit_bytes_ = 0;
  part.place_layers();
  return part;
}

CacheLayout CacheLayout::of_all_ranks(int ranks) const {
  CacheLayout all = *this;
  if (ranks == 1) return all;
  all.unit_bytes_ = 0;
  for (int rank = 0; rank < ranks; ++rank) all.unit_bytes_ += of_rank(rank, ranks).unit_bytes_;
  all.state_bytes_ *= static_cast<size_t>(ranks);
  return all;
}

CacheLayout CacheLayout::of_layers(int begin, int end) const {
  CacheLayout part = *this;
  part.state_bytes_ = 0;
  for (int i = 0; std::cmp_less(i, part.layers_.size()); ++i) {
    LayerCache& layer = part.layers_[static_cast<size_t>(i)];
    const bool own = begin <= i && i < end;
    if (layer.kind == LayerCache::Kind::kKeysValues) {
      layer.model_kv_heads = layer.kv_heads;
      if (!own) layer.kv_heads = 0;
    }
    if (layer.kind == LayerCache::Kind::kState) {
      if (!own) layer.state_bytes = 0;
      part.offset_of_[static_cast<size_t>(i)] = part.state_bytes_;
      part.state_bytes_ += layer.state_bytes;
    }
  }
  // A stage without such layers has units and states, too, as many as the others: without bytes they would not be counted.
  part.unit_bytes_ = unit_bytes_ > 0 ? 64 : 0;
  if (state_bytes_ > 0 && part.state_bytes_ == 0) part.state_bytes_ = 64;
  part.place_layers();
  return part;
}

CacheLayout CacheLayout::of_parts(std::span<const CacheLayout> parts) const {
  CacheLayout all = *this;
  all.unit_bytes_ = all.state_bytes_ = 0;
  for (const CacheLayout& part : parts) {
    all.unit_bytes_ += part.unit_bytes_;
    all.state_bytes_ += part.state_bytes_;
  }
  return all;
}

CacheLayout CacheLayout::of_largest_rank(int ranks) const {
  CacheLayout largest = of_rank(0, ranks);
  for (int rank = 1; rank < ranks; ++rank) {
    if (CacheLayout other = of_rank(rank, ranks); other.unit_bytes_ > largest.unit_bytes_) largest = std::move(other);
  }
  return largest;
}

size_t CacheLayout::sequence_units(int tokens, int rows) const {
  const int all = tokens / kPageTokens + (tokens % kPageTokens != 0);
  size_t total = 0;
  for (const Group& group : groups_) {
    const int seen = group.window > 0 && group.window < tokens ? std::min(tokens, group.window + rows - 1) : tokens;
    total += static_cast<size_t>(std::min(all, most_pages(seen)));
  }
  return total;
}

size_t CacheLayout::token_bytes() const {
  const auto whole = std::count_if(groups_.begin(), groups_.end(), [](const Group& g) { return g.window == 0; });
  return static_cast<size_t>(whole) * unit_bytes_ / kPageTokens;
}

size_t CacheLayout::bounded_bytes(int tokens) const {
  const auto pages = static_cast<size_t>((tokens + kPageTokens - 1) / kPageTokens);
  return sequence_bytes(tokens) - pages * kPageTokens * token_bytes();
}

std::string CacheLayout::identity() const {
  std::string text = fmt::format("type {} page {}", static_cast<int>(type_), kPageTokens);
  for (const LayerCache& l : layers_) {
    text += fmt::format(" {}:{},{},{},{},{}", static_cast<int>(l.kind), l.kv_heads, l.key_dim, l.value_dim, l.window,
                        l.state_bytes);
  }
  return text;
}

}  // namespace quire
