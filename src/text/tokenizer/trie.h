// A map from byte strings to numbers, walked byte by byte.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace quire {

// The limit for tokens that are matched at every position of a text: that takes text length × token length at worst.
inline constexpr size_t kLongestToken = 1024;  // bytes; the longest in use have about 100

// Nodes are numbers; the root is 0. Edges are in one flat hash table.
class Trie {
 public:
  static constexpr int32_t kNone = -1;

  // Of equal keys the last value wins.
  void insert(std::string_view key, int32_t value);
  bool empty() const { return values_.size() <= 1; }

  // The child of `node` along `byte`; kNone: no key continues so.
  int32_t next(int32_t node, unsigned char byte) const {
    if (node == 0) return first_[byte];
    if (edges_.empty()) return kNone;
    const uint64_t key = (static_cast<uint64_t>(node) << 8) | byte;
    for (size_t i = slot(key);; i = (i + 1) & (edges_.size() - 1)) {
      if (edges_[i].key == key) return edges_[i].to;
      if (edges_[i].key == kEmpty) return kNone;
    }
  }
  int32_t value(int32_t node) const { return values_[static_cast<size_t>(node)]; }  // kNone: no key ends here

 private:
  static constexpr uint64_t kEmpty = ~uint64_t{0};
  struct Edge {
    uint64_t key = kEmpty;
    int32_t to = kNone;
  };
  size_t slot(uint64_t key) const {
    key *= 0x9E3779B97F4A7C15u;
    return (key ^ (key >> 32)) & (edges_.size() - 1);
  }
  void grow();

  std::array<int32_t, 256> first_ = [] {
    std::array<int32_t, 256> none;
    none.fill(kNone);
    return none;
  }();
  std::vector<Edge> edges_;
  size_t used_ = 0;
  std::vector<int32_t> values_{kNone};
};

}  // namespace quire
