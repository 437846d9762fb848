#include "ops/cpu/recurrent.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/kernels.h"
#include "kernels/recurrent.h"
#include "kernels/rows.h"
#include "ops/cpu/rows.h"

namespace quire {
namespace {

// Whole cache lines, and enough of them that a row's part is a long run in memory.
constexpr int kChannelsPerTile = 256;

// Calls run(row, rows, checkpoint) for the parts of a span that end where its state is copied. state_in(slot): the part
// of the state that run() changes; copy(from, to) copies it.
template <class StateIn, class Copy, class Run>
void for_parts(const StateSpan& span, const StateIn& state_in, const Copy& copy, const Run& run) {
  int done = 0;
  for (const StateCopy& wanted : span.copies) {
    const int rows = wanted.row + 1 - done;
    if (rows == 0) {  // a second copy of the same state
      copy(state_in(span.slot), state_in(wanted.slot));
      continue;
    }
    run(span.row + done, rows, StateCheckpoint{rows - 1, state_in(wanted.slot)});
    done += rows;
  }
  if (done < span.rows) run(span.row + done, span.rows - done, StateCheckpoint{});
}

// The same for the matrix of one head.
template <class Run>
void for_head_parts(const LayerStates& states, const StateSpan& span, int head, const Run& run) {
  const size_t bytes = states.layout.matrix() * sizeof(float);
  if (span.position == 0) std::memset(states.matrix(span.slot, head), 0, bytes);
  for_parts(
      span, [&](int slot) { return states.matrix(slot, head); },
      [&](const float* from, float* to) { std::memcpy(to, from, bytes); }, run);
}

// f(span, i) for each i in [0, count) of each span.
template <class F>
void for_span_tiles(const Compute& compute, std::span<const StateSpan> spans, int count, const F& f) {
  compute.team.for_tiles(static_cast<int>(spans.size()) * count,
                         [&](int tile, int) { f(spans[static_cast<size_t>(tile / count)], tile % count); });
}

}  // namespace

void convolve(const Compute& compute, const LayerStates& states, const Convolution& args,
              std::span<const StateSpan> spans) {
  const auto channels = static_cast<size_t>(args.x.cols), taps = static_cast<size_t>(states.layout.width - 1);
  const int tiles = (args.x.cols + kChannelsPerTile - 1) / kChannelsPerTile;
  for_span_tiles(compute, spans, tiles, [&](const StateSpan& span, int tile) {
    const int begin = tile * kChannelsPerTile, end = std::min(args.x.cols, begin + kChannelsPerTile);
    const size_t first = static_cast<size_t>(begin), bytes = static_cast<size_t>(end - begin) * sizeof(float);
    const auto for_taps = [&](const auto& f) {
      for (size_t tap = 0; tap < taps; ++tap) f(tap * channels + first);
    };
    float* const state = states.inputs(span.slot);
    if (span.position == 0) for_taps([&](size_t at) { std::memset(state + at, 0, bytes); });
    for_parts(
        span, [&](int slot) { return states.inputs(slot); },
        [&](const float* from, float* to) { for_taps([&](size_t at) { std::memcpy(to + at, from + at, bytes); }); },
        [&](int row, int rows, const StateCheckpoint& checkpoint) {
          compute.kernels.short_conv({.x = args.x.row(row),
                                      .x_stride = args.x.stride,
                                      .y = args.x.row(row),
                                      .y_stride = args.x.stride,
                                      .rows = rows,
                                      .channels = args.x.cols,
                                      .width = states.layout.width,
                                      .weight = args.weight,
                                      .bias = args.bias,
                                      .silu = args.silu,
                                      .state = state,
                                      .checkpoint = checkpoint},
                                     begin, end);
        });
  });
}

void delta_rule(const Compute& compute, const LayerStates& states, const DeltaRule& args,
                std::span<const StateSpan> spans, int rows) {
  const int keys = states.layout.rows, values = states.layout.cols, heads = states.layout.heads,
            shared = heads / args.key_heads;
  for_row_tiles(compute, rows, [&](int begin, int end) {
    const auto to_unit_length = [&](const Rows& x, float scale) {
      compute.kernels.normalize({.kind = NormKind::kL2,
                                 .x = x.data,
                                 .x_stride = x.stride,
                                 .y = x.data,
                                 .y_stride = x.stride,
                                 .size = keys,
                                 .groups = args.key_heads,
                                 .epsilon = args.epsilon,
                                 .scale = scale},
                                begin, end);
    };
    to_unit_length(args.q, 1.0f / std::sqrt(static_cast<float>(keys)));
    to_unit_length(args.k, 1);
    compute.kernels.softplus({.x = args.decay.data,
                              .x_stride = args.decay.stride,
                              .y = args.decay.data,
                              .y_stride = args.decay.stride,
                              .cols = heads,
                              .bias = args.bias,
                              .factor = args.factor},
                             begin, end);
    for (int r = begin; r < end; ++r) compute.kernels.sigmoid(args.beta.row(r), heads);
  });
  for_span_tiles(compute, spans, heads, [&](const StateSpan& span, int head) {
    const int key_head = args.interleaved ? head % args.key_heads : head / shared;
    const Rows q = args.q.columns(key_head * keys, keys), k = args.k.columns(key_head * keys, keys),
               v = args.v.columns(head * values, values), gate = args.decay.columns(head, 1),
               beta = args.beta.columns(head, 1);
    for_head_parts(states, span, head, [&](int row, int count, const StateCheckpoint& checkpoint) {
      compute.kernels.gated_delta({.q = q.row(row),
                                   .k = k.row(row),
                                   .q_stride = q.stride,
                                   .k_stride = k.stride,
                                   .v = v.row(row),
                                   .v_stride = v.stride,
                                   .gate = gate.row(row),
                                   .gate_stride = gate.stride,
                                   .beta = beta.row(row),
                                   .beta_stride = beta.stride,
                                   .out = v.row(row),
                                   .out_stride = v.stride,
                                   .rows = count,
                                   .key_dim = keys,
                                   .value_dim = values,
                                   .state = states.matrix(span.slot, head),
                                   .checkpoint = checkpoint});
    });
  });
}

void state_space(const Compute& compute, const LayerStates& states, const StateSpace& args,
                 std::span<const StateSpan> spans, int rows) {
  const int state_dim = states.layout.rows, head_dim = states.layout.cols, heads = states.layout.heads,
            shared = heads / args.groups;
  for_row_tiles(compute, rows, [&](int begin, int end) {
    compute.kernels.softplus({.x = args.step.data,
                              .x_stride = args.step.stride,
                              .y = args.step.data,
                              .y_stride = args.step.stride,
                              .cols = heads,
                              .bias = args.bias},
                             begin, end);
  });
  for_span_tiles(compute, spans, heads, [&](const StateSpan& span, int head) {
    const Rows x = args.x.columns(head * head_dim, head_dim), dt = args.step.columns(head, 1),
               b = args.b.columns(head / shared * state_dim, state_dim),
               c = args.c.columns(head / shared * state_dim, state_dim);
    for_head_parts(states, span, head, [&](int row, int count, const StateCheckpoint& checkpoint) {
      compute.kernels.mamba2({.x = x.row(row),
                              .x_stride = x.stride,
                              .b = b.row(row),
                              .c = c.row(row),
                              .b_stride = b.stride,
                              .c_stride = c.stride,
                              .dt = dt.row(row),
                              .dt_stride = dt.stride,
                              .a = args.a[head],
                              .d = args.d[head],
                              .y = x.row(row),
                              .y_stride = x.stride,
                              .rows = count,
                              .state_dim = state_dim,
                              .head_dim = head_dim,
                              .state = states.matrix(span.slot, head),
                              .checkpoint = checkpoint});
    });
  });
}

}  // namespace quire
