// What a host that samples needs of a row of logits, where it does not need all of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace quire {

// A draw among the columns that a mask leaves, with the numbers as logits: what quire::sample() (sampling/sampler.h) draws if no logit
// is adjusted. The numbers have the weights of base/softmax_weight.h, and there are at most 2^20.
struct PickDraw {
  float temperature;           // above 0
  double uniform;              // [0, 1)
  bool best_only = false;      // top_k: only the pick's best columns have a weight
  float top_p = 1, min_p = 0;  // of SamplingParams

  // Whether columns with a weight may be left out.
  bool cuts() const { return best_only || top_p < 1 || min_p > 0; }
};

struct Pick {
  // Limits of the picks of one call: for each row on average, words of room; and for all rows together, words of masks and columns.
  static constexpr size_t kWordsPerRow = 1024, kMostArguments = size_t{2} << 20;
  static constexpr int kMostBest = 128;

  int best = 0;                           // how many of the largest numbers; at most kMostBest
  std::span<const uint32_t> mask = {};    // [ceil(cols / 32)] bit set: the column may be among them; empty: all may
  std::span<const int32_t> columns = {};  // whose numbers are wanted as well
  // Among the best ones, of which only the first is then in the result. Takes best >= 1 and no columns.
  std::optional<PickDraw> draw = {};

  // Of its result, 32 bits each.
  size_t words() const { return draw ? 3 : best_words() + columns.size(); }
  // Of all that finding it takes.
  size_t room() const { return words() + (draw ? best_words() : 0); }
  // Where its token is among the words: the column that was drawn, or without a draw the best one. Takes best >= 1.
  size_t token_word() const { return draw ? 2 : 0; }

 private:
  size_t best_words() const { return 2 * static_cast<size_t>(best); }
};

// The result of a pick, as views of its words.
struct Picked {
  // The largest numbers, and their columns: the largest number first, NaN before all numbers, of equal numbers the first
  // column. -1: the mask leaves no further columns.
  std::span<const int32_t> best;
  std::span<const float> best_values;
  std::span<const int32_t> columns;      // those of the pick
  std::span<const float> column_values;  // their numbers
  // The column that was drawn. -1: without a draw; if the best ones do not decide it, because top_p and min_p may leave others, too;
  // and if the best number is NaN or infinite, or there is none.
  int32_t drawn = -1;

  // words [pick.words()]: `best`, their values, and the values of the columns. The columns are the pick's memory.
  Picked(const Pick& pick, std::span<const std::byte> words);
};

// Picks from a row in memory of the host. to [pick.words()]
void pick(std::span<const float> x, const Pick& pick, std::span<uint32_t> to);

}  // namespace quire
