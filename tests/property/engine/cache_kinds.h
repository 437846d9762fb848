// Layouts of every kind, for tests of the cache.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "unit/engine/tiny_cache.h"

namespace quire::testing {

inline constexpr int kWindow = 40, kShortWindow = 7;  // tokens

struct Kind {
  std::string name;
  std::vector<LayerCache> layers;
  CacheLayout layout() const { return {KvType::kBf16, layers}; }
  bool has_states() const { return layout().state_bytes() > 0; }
  friend std::ostream& operator<<(std::ostream& out, const Kind& kind) { return out << kind.name; }
};

inline std::vector<Kind> kinds() {
  const LayerCache all = tiny_layer(), window = tiny_layer(kWindow), narrow = tiny_layer(kShortWindow);
  return {{"Plain", {all}},
          {"Windows", {window}},
          {"WindowsAndAll", {window, window, all, window, window, all}},
          {"TwoWindows", {window, narrow, all}},
          {"States", {tiny_state(), tiny_state()}},
          {"StatesAndAll", {tiny_state(), all}},
          {"Everything", {window, tiny_state(), all, narrow}}};
}

}  // namespace quire::testing
