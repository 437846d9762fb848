// Operations that need the mean or the magnitude of a row in double precision (ops/cpu/rows.cc): a block for each row. A
// thread adds its columns in order; then a tree over the threads.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "cuda/alphabet/alphabet.h"
#include "cuda/kernels/row_access.h"

namespace quire::cuda {

struct RowStatistics {
  static constexpr int kThreads = 256;
  static constexpr int kSharedBytes = kThreads * 8;

  // The sum over the block's threads. All must call it.
  static DEVICE double sum_of(double value) {
    const Shared<double> sums = shared<double>(0);
    sync_block();  // an earlier sum has been read
    sums[thread()] = value;
    sync_block();
    for (int half = kThreads / 2; half > 0; half /= 2) {
      if (thread() < half) sums[thread()] = sums[thread()] + sums[thread() + half];
      sync_block();
    }
    return sums[0];
  }

  // The mean of f(x) over the row's numbers.
  template <class F>
  static DEVICE double mean_of(Global<const float> row, int cols, const F& f) {
    double sum = 0;
    for (int col = thread(); col < cols; col += kThreads) sum += f(static_cast<double>(row[col]));
    return sum_of(sum) / cols;
  }
};

// x = max(0, x - (mean + deviations * standard deviation)). Grid: x: rows.
struct CutRowsBelow {
  static constexpr const char* kName = "cut_rows_below";
  static constexpr int kThreads = RowStatistics::kThreads;
  RowsAt<float> x;
  int cols;
  float deviations;

  DEVICE void operator()() const {
    const Global<float> row = x.row(block_x());
    const double mean = RowStatistics::mean_of(row, cols, [](double value) { return value; });
    const double variance =
        RowStatistics::mean_of(row, cols, [&](double value) { return (value - mean) * (value - mean); });
    const auto cutoff = static_cast<float>(mean + static_cast<double>(deviations) * std::sqrt(variance));
    for (int col = thread(); col < cols; col += kThreads) {
      const float above = row[col] - cutoff;
      row[col] = 0.0f < above ? above : 0.0f;
    }
  }
};

// x *= the root mean square of `like` over its own. Grid: x: rows.
struct MatchRowMagnitudes {
  static constexpr const char* kName = "match_row_magnitudes";
  static constexpr int kThreads = RowStatistics::kThreads;
  RowsAt<float> x;
  RowsAt<const float> like;
  int cols, like_cols;

  DEVICE void operator()() const {
    constexpr double kSmallest = 1e-5;
    const auto square = [](double value) { return value * value; };
    const Global<float> row = x.row(block_x());
    const double wanted = RowStatistics::mean_of(like.row(block_x()), like_cols, square);
    const double own = RowStatistics::mean_of(row, cols, square);
    const auto ratio = static_cast<float>(std::sqrt(wanted) / std::sqrt(own < kSmallest ? kSmallest : own));
    for (int col = thread(); col < cols; col += kThreads) row[col] = row[col] * ratio;
  }
};

}  // namespace quire::cuda
