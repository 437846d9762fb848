// Expected values in safetensors files.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "format/safetensors.h"

namespace quire {

// Empty: the file lacks the tensor.
template <class T>
std::vector<T> values(const Safetensors& file, const std::string& name) {
  const TensorView* t = file.find_tensor(name);
  if (!t) return {};
  std::vector<T> out(t->bytes.size() / sizeof(T));
  std::memcpy(out.data(), t->bytes.data(), t->bytes.size());
  return out;
}

// Infinity if the sizes differ.
inline double largest_difference(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size()) return INFINITY;
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(double{a[i]} - double{b[i]}));
  return largest;
}

// The root mean square of the difference, in those of `wanted`. Infinity if the sizes differ.
inline double relative_distance(std::span<const float> wanted, std::span<const float> found) {
  if (wanted.size() != found.size()) return INFINITY;
  double error = 0, size = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const double difference = double{wanted[i]} - double{found[i]};
    error += difference * difference, size += double{wanted[i]} * double{wanted[i]};
  }
  return std::sqrt(error / size);
}

}  // namespace quire
