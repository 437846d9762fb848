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

}  // namespace quire
