// The encoded words of one text: most words repeat.
#pragma once

#include <cstring>
#include <string_view>
#include <vector>

#include "quire/types.h"

namespace quire {

// An entry points to the word in the text and to its ids in the output; a new word replaces one with the same hash.
// Belongs to one call of encode, whose texts must not move.
class WordCache {
 public:
  // A cache for a text of `bytes`; short texts are not cached.
  explicit WordCache(size_t bytes) {
    if (bytes < 512) return;
    size_t size = 256;
    while (size < kMost && size * 16 < bytes) size *= 2;
    entries_.resize(size);
  }

  // Appends the ids of `word` to `ids`; false if it is not cached.
  bool copy(std::string_view word, TokenIds& ids) {
    if (entries_.empty() || word.size() > kLongest) return false;
    hash_ = hash(word);
    const Entry& e = entries_[hash_ & (entries_.size() - 1)];
    if (e.hash != hash_ || e.length != word.size() || std::memcmp(e.word, word.data(), word.size()) != 0) return false;
    const size_t end = ids.size();
    ids.resize(end + e.count);
    std::memcpy(ids.data() + end, ids.data() + e.begin, e.count * sizeof(TokenId));
    return true;
  }

  // Caches ids [begin, begin+count) of the output for `word`, for which copy() has just returned false.
  void put(std::string_view word, size_t begin, size_t count) {
    if (entries_.empty() || word.size() > kLongest || word.empty()) return;
    entries_[hash_ & (entries_.size() - 1)] = {word.data(), begin, hash_, static_cast<uint32_t>(word.size()),
                                               static_cast<uint32_t>(count)};
  }

 private:
  static constexpr size_t kMost = size_t{1} << 15;  // 1 MiB of entries: fits into the L2 cache
  static constexpr size_t kLongest = 64;
  struct Entry {
    const char* word = nullptr;
    size_t begin = 0;
    uint64_t hash = 0;
    uint32_t length = 0, count = 0;
  };

  static uint64_t hash(std::string_view word) {
    uint64_t h = word.size() * 0x9E3779B97F4A7C15u;
    size_t at = 0;
    const auto mix = [&](uint64_t x) {
      h = (h ^ x) * 0xBF58476D1CE4E5B9u;
      h ^= h >> 29;
    };
    for (; at + 8 <= word.size(); at += 8) {
      uint64_t x;
      std::memcpy(&x, word.data() + at, 8);
      mix(x);
    }
    uint64_t x = 0;
    if (at < word.size()) std::memcpy(&x, word.data() + at, word.size() - at);
    mix(x);
    return h;
  }

  std::vector<Entry> entries_;
  uint64_t hash_ = 0;
};

}  // namespace quire
