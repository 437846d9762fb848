// The short convolution of recurrent layers (ShortConvArgs, kernels/recurrent.h), with the bits of its definition, and where
// recurrent layers find the states of sequences.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/alphabet/alphabet.h"
#include "cuda/kernels/nonlinearity.h"
#include "cuda/kernels/row_access.h"
#include "cuda/kernels/unroll.h"
#include "ops/recurrent.h"

namespace quire::cuda {

// A StateSpan: its copies are [first_copy, first_copy + copies) of a list.
struct PlacedSpan {
  int row, rows, position, slot, first_copy, copies;
};

// One layer's states.
struct StatesAt {
  Global<float> first;  // slot 0's
  size_t stride;        // numbers from slot to slot
  Global<const PlacedSpan> spans;
  Global<const StateCopy> copies;

  DEVICE Global<float> of(int slot) const { return first + static_cast<size_t>(slot) * stride; }

  // The copies of a span's state that are still to come, while a thread goes through its rows.
  struct Copies {
    int next, end;
    int row;  // of the next one; -1: none
  };
  DEVICE Copies copies_of(const PlacedSpan& span) const {
    Copies c{span.first_copy - 1, span.first_copy + span.copies, -1};
    advance(c);
    return c;
  }
  DEVICE void advance(Copies& c) const {
    ++c.next;
    c.row = c.next < c.end ? StateCopy(copies[c.next]).row : -1;
  }
  // write(state of a slot) for each copy after this row.
  template <class F>
  DEVICE void copy_after(int row, Copies& c, const F& write) const {
    while (c.row >= 0 && c.row < row) advance(c);  // those that other warps write
    while (c.row == row) {
      write(of(StateCopy(copies[c.next]).slot));
      advance(c);
    }
  }
};

// A lane does one channel of a span's rows, kRowWarps * kWarpRows rows at a time: each of kRowWarps warps kWarpRows of them.
// The last inputs before a warp's rows come from the warp before it by shared memory. With one such warp, for short spans, a
// block's 4 warps do different channels.
//
// Grid: x: spans, y: channels / kChannels, rounded up. Shared memory: kSharedBytes.
template <int kWidth, int kRowWarps>
struct ConvolveRows {
  static constexpr const char* kName = kRowWarps == 1 ? "convolve_few_rows" : "convolve_rows";
  static constexpr int kChannelWarps = kRowWarps == 1 ? 4 : 1;
  static constexpr int kThreads = 32 * kRowWarps * kChannelWarps;
  static constexpr int kChannels = 32 * kChannelWarps;  // of a block
  static constexpr int kTaps = kWidth - 1;
  static constexpr int kWarpRows = 8;
  static_assert(kTaps <= kWarpRows, "a warp's inputs must be all that the next warp sees before its own");
  static constexpr int kStep = kRowWarps * kWarpRows;

  // The last inputs of each warp. Three steps' in turn: a warp may write the next step's while another reads the last step's.
  static constexpr int kStepHistory = kRowWarps * kTaps * 32;  // numbers
  static constexpr int kSharedBytes = kRowWarps == 1 ? 0 : 3 * kStepHistory * 4;

  StatesAt states;
  RowsAt<float> x;                   // [rows, channels]
  Global<const float> weight, bias;  // [kWidth][channels], [channels] or nullptr
  int channels;
  Flag silu;

  static DEVICE int row_warp() { return warp() % kRowWarps; }
  static DEVICE Shared<float> history(int step, int of_warp) {
    return shared<float>(0) + (step % 3 * kRowWarps + of_warp) * kTaps * 32 + lane();
  }

  // The inputs of the warp's rows in a step.
  DEVICE void read(float (&inputs)[kWarpRows], const PlacedSpan& span, int first, int channel) const {
    UNROLL
    for (int i = 0; i < kWarpRows; ++i) {
      if (first + i < span.rows && channel < channels) inputs[i] = x.row(span.row + first + i)[channel];
    }
  }

  DEVICE void operator()() const {
    const int channel = block_y() * kChannels + warp() / kRowWarps * 32 + lane();
    const bool exists = channel < channels;
    const PlacedSpan span = states.spans[block_x()];
    StatesAt::Copies copies = states.copies_of(span);
    const auto at = [&](int tap) { return static_cast<size_t>(tap) * static_cast<size_t>(channels) + channel; };
    const Global<float> state = states.of(span.slot);
    float past[kTaps] = {}, weights[kWidth] = {};
    UNROLL
    for (int tap = 0; tap < kTaps; ++tap) {
      if (exists && span.position != 0) past[tap] = state[at(tap)];
    }
    UNROLL
    for (int tap = 0; tap < kWidth; ++tap) {
      if (exists) weights[tap] = weight[at(tap)];
    }
    const float added = exists && bias != nullptr ? float(bias[channel]) : 0.0f;
    const auto keep = [&](Global<float> to) {
      UNROLL
      for (int tap = 0; tap < kTaps; ++tap) {
        if (exists) to[at(tap)] = past[tap];
      }
    };

    float inputs[kWarpRows] = {}, later[kWarpRows] = {};
    const int warp_at = row_warp() * kWarpRows;
    read(inputs, span, warp_at, channel);
    for (int step = 0; step * kStep < span.rows; ++step) {
      const int first = step * kStep + warp_at;
      read(later, span, first + kStep, channel);
      if constexpr (kRowWarps > 1) {
        UNROLL
        for (int tap = 0; tap < kTaps; ++tap) history(step, row_warp())[tap * 32] = inputs[kWarpRows - kTaps + tap];
        sync_block();
        if (step > 0 || row_warp() > 0) {
          const Shared<float> before =
              row_warp() > 0 ? history(step, row_warp() - 1) : history(step - 1, kRowWarps - 1);
          UNROLL
          for (int tap = 0; tap < kTaps; ++tap) past[tap] = before[tap * 32];
        }
      }
      UNROLL
      for (int i = 0; i < kWarpRows; ++i) {
        const int row = first + i;
        if (row >= span.rows) break;
        float sum = 0;
        UNROLL
        for (int tap = 0; tap < kTaps; ++tap) sum = fma_of(weights[tap], past[tap], sum);
        sum = fma_of(weights[kTaps], inputs[i], sum);
        if (bias != nullptr) sum += added;
        if (exists) x.row(span.row + row)[channel] = silu ? silu_lane(sum) : sum;
        UNROLL
        for (int tap = 0; tap < kTaps; ++tap) past[tap] = tap + 1 < kTaps ? past[tap + 1] : inputs[i];
        states.copy_after(row, copies, keep);
        if (row + 1 == span.rows) keep(state);
      }
      UNROLL
      for (int i = 0; i < kWarpRows; ++i) inputs[i] = later[i];
    }
  }
};

}  // namespace quire::cuda
