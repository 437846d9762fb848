// Random rotations of vectors that are fast to multiply by: Hadamard matrices with random signs.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace quire {

// Entries 1 and -1, [order][order]; H H^T = order * I. By Paley's constructions (1933), from the squares modulo a prime q:
// order q + 1 for q = 3 mod 4, order 2 (q + 1) for q = 1 mod 4. Empty: neither gives this order.
std::vector<int8_t> paley_matrix(int order);

// R = diag(signs) H / sqrt(size), orthogonal, for row vectors x R. A size of 2^k m with m odd has for H
//
//   Sylvester's matrix                      if m is 1
//   Paley's matrix of the smallest order 2^j m that there is, 2 <= j <= k, times Sylvester's of the rest (Kronecker)
//   Sylvester's of 2^k, in blocks           otherwise
//
// QuaRot (Ashkboos et al. 2024, arXiv 2404.00456) rotates hidden states by such matrices.
class RandomHadamard {
 public:
  // size: at least 1. The signs are the same for the same size.
  explicit RandomHadamard(int size);

  int size() const { return order_ * power_ * blocks_; }
  // Numbers that are mixed with each other: size(), or that of a block.
  int block() const { return order_ * power_; }
  // x = x R; x: [size]. scratch: as long.
  void rotate(std::span<double> x, std::span<double> scratch) const;

 private:
  int order_ = 1;  // of Paley's matrix; 1: there is none
  int power_ = 1;  // of Sylvester's
  int blocks_ = 1;
  std::vector<int8_t> paley_;    // [order][order]
  std::vector<double> factors_;  // signs / sqrt(block)
};

}  // namespace quire
