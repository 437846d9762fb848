#include "quantize/rotate/hadamard.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstddef>
#include <random>

namespace quire {
namespace {

bool is_prime(int n) {
  for (int d = 2; d * d <= n; ++d) {
    if (n % d == 0) return false;
  }
  return n > 1;
}

// Whether each residue modulo q is a square: 1, -1, and 0 for 0.
std::vector<int8_t> quadratic_characters(int q) {
  std::vector<int8_t> characters(static_cast<size_t>(q), -1);
  characters[0] = 0;
  for (int64_t i = 1; i < q; ++i) characters[static_cast<size_t>(i * i % q)] = 1;
  return characters;
}

// [q + 1][q + 1]: a border of ones around the characters of i - j, with `below` in the first column and 0 in the corner.
std::vector<int8_t> bordered_characters(int q, int8_t below) {
  const std::vector<int8_t> characters = quadratic_characters(q);
  const auto side = static_cast<size_t>(q) + 1;
  std::vector<int8_t> matrix(side * side);
  for (size_t i = 0; i < side; ++i) {
    for (size_t j = 0; j < side; ++j) {
      int8_t& entry = matrix[i * side + j];
      if (i > 0 && j > 0)
        entry = characters[(i + static_cast<size_t>(q) - j) % static_cast<size_t>(q)];
      else if (i != j)
        entry = i == 0 ? int8_t{1} : below;
    }
  }
  return matrix;
}

// x [size] times Sylvester's matrix.
void multiply_sylvester(std::span<double> x) {
  for (size_t half = 1; half < x.size(); half *= 2) {
    for (size_t begin = 0; begin < x.size(); begin += 2 * half) {
      for (size_t i = begin; i < begin + half; ++i) {
        const double a = x[i], b = x[i + half];
        x[i] = a + b;
        x[i + half] = a - b;
      }
    }
  }
}

}  // namespace

std::vector<int8_t> paley_matrix(int order) {
  const int q = order - 1;
  if (order % 4 == 0 && q % 4 == 3 && is_prime(q)) {
    std::vector<int8_t> h = bordered_characters(q, -1);
    for (size_t i = 0; i < h.size(); i += static_cast<size_t>(order) + 1) h[i] = 1;
    return h;
  }
  const int p = order / 2 - 1;
  if (order % 4 != 0 || p % 4 != 1 || !is_prime(p)) return {};
  // C of p + 1 rows becomes C x [1 1; 1 -1] + I x [1 -1; -1 -1].
  const std::vector<int8_t> c = bordered_characters(p, 1);
  const auto half = static_cast<size_t>(p) + 1, side = 2 * half;
  std::vector<int8_t> h(side * side);
  for (size_t i = 0; i < half; ++i) {
    for (size_t j = 0; j < half; ++j) {
      const int8_t of_c = c[i * half + j], on_diagonal = i == j;
      int8_t* const at = &h[2 * i * side + 2 * j];
      at[0] = static_cast<int8_t>(of_c + on_diagonal);
      at[1] = static_cast<int8_t>(of_c - on_diagonal);
      at[side] = static_cast<int8_t>(of_c - on_diagonal);
      at[side + 1] = static_cast<int8_t>(-of_c - on_diagonal);
    }
  }
  return h;
}

RandomHadamard::RandomHadamard(int size) {
  assert(size > 0);
  const int power = 1 << std::countr_zero(static_cast<unsigned>(size)), odd = size / power;
  for (int factor = 4; odd > 1 && factor <= power && paley_.empty(); factor *= 2) {
    paley_ = paley_matrix(factor * odd);
    if (!paley_.empty()) order_ = factor * odd;
  }
  power_ = paley_.empty() ? power : size / order_;
  blocks_ = size / block();
  std::mt19937_64 generator(static_cast<uint64_t>(size));
  const double scale = 1 / std::sqrt(static_cast<double>(block()));
  for (int i = 0; i < size; ++i) factors_.push_back((generator() >> 63) != 0 ? -scale : scale);
}

void RandomHadamard::rotate(std::span<double> x, std::span<double> scratch) const {
  assert(x.size() == factors_.size() && scratch.size() >= x.size());
  const auto order = static_cast<size_t>(order_), power = static_cast<size_t>(power_);
  for (size_t i = 0; i < x.size(); ++i) x[i] *= factors_[i];
  for (size_t begin = 0; begin < x.size(); begin += power) multiply_sylvester(x.subspan(begin, power));
  if (paley_.empty()) return;
  for (size_t j = 0; j < order; ++j) {
    const std::span<double> sums = scratch.subspan(j * power, power);
    std::ranges::fill(sums, 0.0);
    for (size_t i = 0; i < order; ++i) {
      const double sign = paley_[i * order + j];
      for (size_t k = 0; k < power; ++k) sums[k] += sign * x[i * power + k];
    }
  }
  std::ranges::copy(scratch.first(x.size()), x.begin());
}

}  // namespace quire
