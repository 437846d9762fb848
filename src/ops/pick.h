// What a host that samples needs of a row of logits, where it does not need all of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace quire {

struct Pick {
  // Limits of the picks of one call: for each row on average, words of results; and for all rows together, words of masks and
  // columns.
  static constexpr size_t kWordsPerRow = 1024, kMostArguments = size_t{2} << 20;
  static constexpr int kMostBest = 128;

  int best = 0;                           // how many of the largest numbers; at most kMostBest
  std::span<const uint32_t> mask = {};    // [ceil(cols / 32)] bit set: the column may be among them; empty: all may
  std::span<const int32_t> columns = {};  // whose numbers are wanted as well

  // Of its result, 32 bits each.
  size_t words() const { return 2 * static_cast<size_t>(best) + columns.size(); }
};

// The result of a pick, as views of its words.
struct Picked {
  // The largest numbers, and their columns: the largest number first, NaN before all numbers, of equal numbers the first
  // column. -1: the mask leaves no further columns.
  std::span<const int32_t> best;
  std::span<const float> best_values;
  std::span<const int32_t> columns;      // those of the pick
  std::span<const float> column_values;  // their numbers

  // words [pick.words()]: `best`, their values, and the values of the columns. The columns are the pick's memory.
  Picked(const Pick& pick, std::span<const std::byte> words);
};

// Picks from a row in memory of the host. to [pick.words()]
void pick(std::span<const float> x, const Pick& pick, std::span<uint32_t> to);

}  // namespace quire
