#include "text/tokenizer/trie.h"

#include <utility>

namespace quire {

void Trie::grow() {
  std::vector<Edge> old = std::exchange(edges_, std::vector<Edge>(edges_.empty() ? 256 : edges_.size() * 2));
  for (const Edge& edge : old) {
    if (edge.key == kEmpty) continue;
    size_t i = slot(edge.key);
    while (edges_[i].key != kEmpty) i = (i + 1) & (edges_.size() - 1);
    edges_[i] = edge;
  }
}

void Trie::insert(std::string_view key, int32_t value) {
  int32_t node = 0;
  for (char c : key) {
    const auto byte = static_cast<unsigned char>(c);
    int32_t to = next(node, byte);
    if (to == kNone) {
      to = static_cast<int32_t>(values_.size());
      values_.push_back(kNone);
      if (node == 0) {
        first_[byte] = to;
      } else {
        if ((used_ + 1) * 2 > edges_.size()) grow();
        const uint64_t edge = (static_cast<uint64_t>(node) << 8) | byte;
        size_t i = slot(edge);
        while (edges_[i].key != kEmpty) i = (i + 1) & (edges_.size() - 1);
        edges_[i] = {edge, to};
        ++used_;
      }
    }
    node = to;
  }
  if (node != 0) values_[static_cast<size_t>(node)] = value;
}

}  // namespace quire
