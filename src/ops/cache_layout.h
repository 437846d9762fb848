// What a model keeps of a sequence's tokens, layer by layer, and how it is cut into units of memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/types.h"

namespace quire {

// What one layer keeps.
struct LayerCache {
  enum class Kind : uint8_t {
    kNothing,     // no memory of its own; it may read another layer's
    kKeysValues,  // keys and values of each token
    kState,       // one state per sequence, of constant size
  };
  Kind kind = Kind::kNothing;
  int kv_heads = 0, key_dim = 0, value_dim = 0;
  int window = 0;          // tokens that the newest one sees, its own included; 0: all
  size_t state_bytes = 0;  // a multiple of 64
  // Where ranks share the heads, or stages the layers: kv_heads are those of this rank, the first of them is the model's
  // number first_kv_head, and the model has model_kv_heads. 0: kv_heads are all.
  int first_kv_head = 0, model_kv_heads = 0;

  bool operator==(const LayerCache&) const = default;
};

// The first page that the token at `position` sees through a window of this many tokens, its own included; 0: all.
constexpr int first_visible_page(int window, int position) {
  return window > 0 ? std::max(0, position - window + 1) / kPageTokens : 0;
}
// The most pages that so many consecutive tokens lie in: they may begin and end in the middle of one.
constexpr int most_pages(int tokens) { return (tokens + kPageTokens - 2) / kPageTokens + 1; }

// A unit is the memory of kPageTokens tokens for one group of layers. Layers of a group keep the same tokens, so a
// sequence has one page table per group. All units have the same size, so one pool serves all groups: layers with equal
// windows are cut into groups of nearly that size.
class CacheLayout {
 public:
  struct Group {
    int window;               // the same for all its layers
    std::vector<int> layers;  // ascending
    bool operator==(const Group&) const = default;
  };

  CacheLayout() = default;
  // layers: of the model, in order.
  CacheLayout(KvType type, std::vector<LayerCache> layers);

  KvType type() const { return type_; }
  std::span<const LayerCache> layers() const { return layers_; }
  std::span<const Group> groups() const { return groups_; }  // without a window first, then by window
  int group_of(int layer) const { return group_of_[static_cast<size_t>(layer)]; }       // -1: none
  size_t offset_of(int layer) const { return offset_of_[static_cast<size_t>(layer)]; }  // in a unit or a state
  size_t unit_bytes() const { return unit_bytes_; }
  size_t state_bytes() const { return state_bytes_; }  // for one sequence, all layers
  // The most units that a sequence of this length holds while it is computed `rows` tokens at a time.
  size_t sequence_units(int tokens, int rows = 1) const;
  // These units of all groups, and the sequence's state.
  size_t sequence_bytes(int tokens) const { return sequence_units(tokens) * unit_bytes_ + state_bytes_; }
  // Bytes of each further token: of the groups without a window.
  size_t token_bytes() const;
  // The part of sequence_bytes() that stops growing: windows and state.
  size_t bounded_bytes(int tokens) const;
  // What one of several ranks keeps: share_of() each layer's KV heads, or all where there are fewer heads than ranks, and
  // whole states. Its groups and layers are these, so page tables are those of all ranks.
  CacheLayout of_rank(int rank, int ranks) const;
  // For counting memory: a unit's and a state's bytes are those of all ranks together.
  CacheLayout of_all_ranks(int ranks) const;
  // What one of several stages keeps: layers [begin, end), with all of their KV heads and states, and of the others nothing.
  // Its groups and layers are these, so page tables are those of all stages. A unit is as large as the stage's part of the
  // group of which it has most.
  CacheLayout of_layers(int begin, int end) const;
  // For counting memory: a unit's and a state's bytes are those of all these parts together.
  CacheLayout of_parts(std::span<const CacheLayout> parts) const;
  // Of the rank whose unit is the largest.
  CacheLayout of_largest_rank(int ranks) const;
  // Everything that the bytes of a unit or a state depend on, as text: for the keys of persisted pages.
  std::string identity() const;

 private:
  void place_layers();

  KvType type_ = KvType::kBf16;
  std::vector<LayerCache> layers_;
  std::vector<Group> groups_;
  std::vector<int> group_of_;
  std::vector<size_t> offset_of_;
  size_t unit_bytes_ = 0, state_bytes_ = 0;
};

// The memory of a cache.
struct CacheShape {
  CacheLayout layout;
  int units = 0, states = 0;
};

// Bytes of kPageTokens tokens of one layer.
size_t page_bytes(KvType type, const LayerCache& layer);

}  // namespace quire
