#include "ops/input_transform.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <utility>

namespace quire {
namespace {

// Row i, column j of Sylvester's matrix.
float sylvester(size_t i, size_t j) { return std::popcount(i & j) % 2 == 0 ? 1.0f : -1.0f; }

// x [size] times Sylvester's matrix: log2(size) rounds of sums and differences.
void multiply_sylvester(float* x, size_t size) {
  for (size_t half = 1; half < size; half *= 2) {
    for (size_t begin = 0; begin < size; begin += 2 * half) {
      for (size_t i = begin; i < begin + half; ++i) {
        const float a = x[i], b = x[i + half];
        x[i] = a + b;
        x[i + half] = a - b;
      }
    }
  }
}

// out [size] = x times the matrix.
void multiply_dense(const std::vector<float>& matrix, const float* x, size_t size, float* out) {
  std::fill_n(out, size, 0.0f);
  for (size_t i = 0; i < size; ++i) {
    const float* row = matrix.data() + i * size;
    for (size_t j = 0; j < size; ++j) out[j] += x[i] * row[j];
  }
}

// x: may be `to`, unless the rotation has a matrix.
void rotate_blocks(const Rotation& r, const float* x, size_t cols, float* to) {
  const auto size = static_cast<size_t>(r.size);
  const float scale = 1.0f / std::sqrt(static_cast<float>(r.size));
  const auto multiply_signs = [&](float* block) {
    for (size_t i = 0; i < size; ++i) block[i] *= r.signs[i];
  };
  for (size_t begin = 0; begin < cols; begin += size) {
    float* block = to + begin;
    if (!r.matrix.empty()) {
      multiply_dense(r.matrix, x + begin, size, block);
    } else {
      if (x != to) std::memcpy(block, x + begin, size * sizeof(float));
      if (!r.signs.empty() && !r.signs_last) multiply_signs(block);
      multiply_sylvester(block, size);
      if (!r.signs.empty() && r.signs_last) multiply_signs(block);
    }
    for (size_t i = 0; i < size; ++i) block[i] *= scale;
  }
}

}  // namespace

void transform_row(const InputTransform& t, const float* x, int cols, float* to) {
  const auto count = static_cast<size_t>(cols);
  assert(t.rotation.size == 0 || (t.order.empty() && cols % t.rotation.size == 0));
  if (!t.order.empty()) {
    for (size_t i = 0; i < count; ++i) {
      const auto from = static_cast<size_t>(t.order[i]);
      to[i] = t.factors.empty() ? x[from] : x[from] * t.factors[from];
    }
    return;
  }
  if (!t.factors.empty()) {
    // A dense product cannot be made in place.
    assert(t.rotation.matrix.empty());
    for (size_t i = 0; i < count; ++i) to[i] = x[i] * t.factors[i];
    x = to;
  }
  if (t.rotation.size != 0) rotate_blocks(t.rotation, x, count, to);
}

Rotation rotation_of(std::vector<float> h, int size, bool transposed) {
  const auto n = static_cast<size_t>(size);
  Rotation r;
  r.size = size;
  // diag(s) S has s in its first column, S diag(s) in its first row.
  const auto is_signed = [&](bool rows) {
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j < n; ++j)
        if (h[i * n + j] != sylvester(i, j) * (rows ? h[i * n] : h[j])) return false;
    }
    return true;
  };
  const bool rows = std::has_single_bit(n) && is_signed(true);
  if (rows || (std::has_single_bit(n) && is_signed(false))) {
    for (size_t i = 0; i < n; ++i) r.signs.push_back(rows ? h[i * n] : h[i]);
    r.signs_last = rows == transposed;
    if (std::ranges::all_of(r.signs, [](float s) { return s == 1; })) r.signs.clear(), r.signs_last = false;
    return r;
  }
  if (transposed) {
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j < i; ++j) std::swap(h[i * n + j], h[j * n + i]);
    }
  }
  r.matrix = std::move(h);
  return r;
}

}  // namespace quire
