// N-grams by their first token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "quire/types.h"

namespace quire {

// Built like a cache of a processor: the first token's hash picks a set of n-grams, in which the least recently
// inserted one is replaced. All memory is allocated by the constructor: sets * ways * (4 n + 4) bytes. Not
// thread-safe.
class NgramPool {
 public:
  // n >= 2; sets: a power of two.
  NgramPool(int n, size_t sets, size_t ways);

  // The n-gram of these n tokens is now the latest of its first token.
  void insert(std::span<const TokenId> ngram);
  // The n - 1 tokens after `first` in its latest n-gram; empty: none. Valid until the next insert().
  std::span<const TokenId> after(TokenId first) const;

  size_t n() const { return n_; }
  size_t bytes() const { return tokens_.capacity() * sizeof(TokenId) + times_.capacity() * sizeof(uint32_t); }

 private:
  size_t set_of(TokenId first) const;

  size_t n_, sets_, ways_;
  TokenIds tokens_;              // [sets][ways][n]
  std::vector<uint32_t> times_;  // [sets][ways] of insertion; 0: empty
  uint32_t now_ = 0;
};

}  // namespace quire
