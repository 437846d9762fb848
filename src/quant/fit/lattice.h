// The vectors that the indices of IQ1, IQ2 and IQ3 blocks stand for, and those that lie near a given one.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "quant/fit/lanes.h"

namespace quire {

// Vectors of `dims` elements, each one of a few ascending levels. To round a vector, each element is rounded to its level
// alone, which gives a cell; the lattice's vectors that are nearest to the middle of the cell are listed, and the caller
// weighs these. A full search would look at 256 to 2048.
template <size_t dims, size_t levels, size_t near>
class Lattice {
 public:
  static constexpr size_t kDims = dims;
  using Codes = std::array<uint8_t, dims>;

  // grid: the elements' codes, the first in the lowest bits, 16 / dims bits each.
  template <size_t n>
  Lattice(const std::array<uint16_t, n>& grid, const std::array<float, levels>& values) : values_(values) {
    for (size_t i = 0; i + 1 < levels; ++i) between_[i] = (values[i] + values[i + 1]) / 2;
    for (const uint16_t packed : grid) {
      Point point{};
      for (size_t i = 0; i < dims; ++i) {
        point.codes[i] = static_cast<uint8_t>(packed >> kBits * i & ((1 << kBits) - 1));
        point.values[i] = values[point.codes[i]];
      }
      points_.push_back(point);
    }
    list_neighbours();
  }

  struct Point {
    alignas(16) std::array<float, dims> values;
    Codes codes;
  };

  // The points near the cell of y: kNear of them.
  std::span<const uint16_t> near_to(const std::array<float, dims>& y) const {
    size_t cell = 0;
    for (size_t i = dims; i-- > 0;) {
      size_t level = 0;
      for (const float border : between_) level += y[i] > border;
      cell = cell * levels + level;
    }
    return std::span(neighbours_).subspan(cell * near, near);
  }
  const Point& point(size_t i) const { return points_[i]; }

 private:
  static constexpr size_t kBits = 16 / dims;

  void list_neighbours() {
    size_t cells = 1;
    for (size_t i = 0; i < dims; ++i) cells *= levels;
    neighbours_.resize(cells * near);
    std::vector<float> distances(points_.size());
    std::vector<uint16_t> order(points_.size());
    for (size_t cell = 0; cell < cells; ++cell) {
      std::array<float, dims> middle;
      size_t rest = cell;
      for (float& x : middle) x = values_[rest % levels], rest /= levels;
      for (size_t p = 0; p < points_.size(); ++p) {
        float sum = 0;
        for (size_t i = 0; i < dims; ++i) {
          const float difference = points_[p].values[i] - middle[i];
          sum += difference * difference;
        }
        distances[p] = sum;
      }
      std::iota(order.begin(), order.end(), uint16_t{0});
      const auto nearer = [&](uint16_t a, uint16_t b) {
        return std::pair(distances[a], a) < std::pair(distances[b], b);
      };
      std::partial_sort(order.begin(), order.begin() + near, order.end(), nearer);
      std::copy_n(order.begin(), near, neighbours_.begin() + static_cast<ptrdiff_t>(cell * near));
    }
  }

  std::array<float, levels> values_;
  std::array<float, levels - 1> between_;
  std::vector<Point> points_;
  std::vector<uint16_t> neighbours_;  // [cells][near]
};

}  // namespace quire
