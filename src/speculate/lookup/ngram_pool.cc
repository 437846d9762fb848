#include "speculate/lookup/ngram_pool.h"

#include <algorithm>
#include <bit>
#include <cassert>

namespace quire {

NgramPool::NgramPool(int n, size_t sets, size_t ways)
    : n_(static_cast<size_t>(n)),
      sets_(sets),
      ways_(ways),
      tokens_(sets * ways * n_, kNoToken),
      times_(sets * ways, 0) {
  assert(n >= 2 && std::has_single_bit(sets) && ways >= 1);
}

size_t NgramPool::set_of(TokenId first) const {
  return ((static_cast<uint32_t>(first) * uint64_t{0x9E3779B97F4A7C15}) >> 32) & (sets_ - 1);
}

void NgramPool::insert(std::span<const TokenId> ngram) {
  assert(ngram.size() == n_);
  if (++now_ == 0) {  // after 2^32 insertions the order is forgotten
    std::fill(times_.begin(), times_.end(), 0);
    now_ = 1;
  }
  const size_t begin = set_of(ngram[0]) * ways_;
  size_t oldest = begin, place = begin;
  for (; place < begin + ways_; ++place) {
    if (times_[place] < times_[oldest]) oldest = place;
    if (times_[place] != 0 && std::equal(ngram.begin(), ngram.end(), &tokens_[place * n_])) break;
  }
  if (place == begin + ways_) {
    place = oldest;
    std::copy(ngram.begin(), ngram.end(), &tokens_[place * n_]);
  }
  times_[place] = now_;
}

std::span<const TokenId> NgramPool::after(TokenId first) const {
  const size_t begin = set_of(first) * ways_;
  size_t latest = begin;
  uint32_t time = 0;
  for (size_t place = begin; place < begin + ways_; ++place) {
    if (times_[place] > time && tokens_[place * n_] == first) {
      latest = place;
      time = times_[place];
    }
  }
  if (time == 0) return {};
  return std::span(tokens_).subspan(latest * n_ + 1, n_ - 1);
}

}  // namespace quire
