#include "cuda/recurrent.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "cuda/kernels/recurrent.h"
#include "cuda/kernels/rows.h"
#include "cuda/row_arguments.h"
#include "kernels/types.h"

namespace quire::cuda {
namespace {

StatesAt place_states(Stream& stream, SpanLists& lists, const LayerStates& states, std::span<const StateSpan> spans) {
  lists.spans.clear();
  lists.copies.clear();
  for (const StateSpan& span : spans) {
    lists.spans.push_back({span.row, span.rows, span.position, span.slot, static_cast<int>(lists.copies.size()),
                           static_cast<int>(span.copies.size())});
    lists.copies.insert(lists.copies.end(), span.copies.begin(), span.copies.end());
  }
  // Steps differ in their copies. With the same number of them, what is placed after them keeps its place, and a step's
  // launches stay those that have been recorded.
  lists.copies.resize(std::bit_ceil(std::max<size_t>(lists.copies.size(), 8)), {-1, -1});
  return {.first = Global<float>(states.inputs(0)),
          .stride = states.cache.layout().state_bytes() / sizeof(float),
          .spans = Global<const PlacedSpan>(stream.place(std::span<const PlacedSpan>(lists.spans))),
          .copies = Global<const StateCopy>(stream.place(std::span<const StateCopy>(lists.copies)))};
}

template <int kWidth, int kRowWarps>
void launch_convolution(Stream& stream, const StatesAt& states, const Convolution& args, int spans) {
  using Kernel = ConvolveRows<kWidth, kRowWarps>;
  stream.launch({.x = spans,
                 .y = (args.x.cols + Kernel::kChannels - 1) / Kernel::kChannels,
                 .threads = Kernel::kThreads,
                 .shared_bytes = Kernel::kSharedBytes},
                Kernel{.states = states,
                       .x = writable(args.x),
                       .weight = Global<const float>(args.weight),
                       .bias = Global<const float>(args.bias),
                       .channels = args.x.cols,
                       .silu = args.silu});
}

// The bits are those of either kernel.
template <int kWidth>
void launch_convolve(Stream& stream, const StatesAt& states, const Convolution& args,
                     std::span<const StateSpan> spans) {
  const bool few_rows =
      std::ranges::all_of(spans, [](const StateSpan& span) { return span.rows <= ConvolveRows<kWidth, 1>::kWarpRows; });
  const auto count = static_cast<int>(spans.size());
  if (few_rows) return launch_convolution<kWidth, 1>(stream, states, args, count);
  launch_convolution<kWidth, 8>(stream, states, args, count);
}

// What both recurrences take from the layer's shape.
struct RecurrentArgs {
  StatesAt states;
  Rows keys, queries, values, first, second;
  const float *a = nullptr, *d = nullptr;
  int key_heads;
  bool interleaved = false;
};

template <Recurrence kRecurrence, int kLaneKeys>
void launch_recurrence(Stream& stream, const StateLayout& layout, const RecurrentArgs& args, int spans) {
  using Kernel = RecurRows<kRecurrence, kLaneKeys>;
  const int tiles = (layout.cols + Kernel::kCols - 1) / Kernel::kCols;
  stream.launch(
      {.x = spans, .y = layout.heads * tiles, .threads = Kernel::kThreads, .shared_bytes = Kernel::kSharedBytes},
      Kernel{.states = args.states,
             .keys = readable(args.keys),
             .queries = readable(args.queries),
             .values = writable(args.values),
             .first = readable(args.first),
             .second = readable(args.second),
             .a = Global<const float>(args.a),
             .d = Global<const float>(args.d),
             .matrices_at = layout.matrices_at(),
             .key_dim = layout.rows,
             .cols = layout.cols,
             .heads = layout.heads,
             .key_heads = args.key_heads,
             .interleaved = args.interleaved,
             .keys_aligned = is_aligned(args.keys) && is_aligned(args.queries) && layout.rows % 4 == 0,
             .values_aligned = is_aligned(args.values) && layout.cols % 4 == 0});
}

template <Recurrence kRecurrence>
void recur(Stream& stream, const StateLayout& layout, const RecurrentArgs& args, int spans) {
  assert(layout.rows <= kMaxKeyDim);
  if (layout.rows <= 64) return launch_recurrence<kRecurrence, 4>(stream, layout, args, spans);
  if (layout.rows <= 128) return launch_recurrence<kRecurrence, 8>(stream, layout, args, spans);
  launch_recurrence<kRecurrence, 16>(stream, layout, args, spans);
}

}  // namespace

void convolve(Stream& stream, SpanLists& lists, const LayerStates& states, const Convolution& args,
              std::span<const StateSpan> spans) {
  if (spans.empty()) return;
  const StatesAt at = place_states(stream, lists, states, spans);
  switch (states.layout.width) {
    case 2:
      return launch_convolve<2>(stream, at, args, spans);
    case 3:
      return launch_convolve<3>(stream, at, args, spans);
    case 4:
      return launch_convolve<4>(stream, at, args, spans);
    case 5:
      return launch_convolve<5>(stream, at, args, spans);
    case 6:
      return launch_convolve<6>(stream, at, args, spans);
    case 7:
      return launch_convolve<7>(stream, at, args, spans);
    default:
      static_assert(kMaxConvWidth == 8);
      assert(states.layout.width == 8);
      return launch_convolve<8>(stream, at, args, spans);
  }
}

void delta_rule(Stream& stream, SpanLists& lists, const LayerStates& states, const DeltaRule& args,
                std::span<const StateSpan> spans, int rows) {
  if (spans.empty()) return;
  const StateLayout& layout = states.layout;
  const auto to_unit_length = [&](const Rows& x, float scale) {
    return NormalizeRows<32>{.kind = NormKind::kL2,
                             .accumulate = false,
                             .aligned = is_aligned(x) && layout.rows % 4 == 0,
                             .rows = rows,
                             .groups = args.key_heads,
                             .size = layout.rows,
                             .x = readable(x),
                             .y = writable(x),
                             .weight = nullptr,
                             .bias = nullptr,
                             .weight_stride = 0,
                             .epsilon = args.epsilon,
                             .scale = scale};
  };
  static_assert(kMaxKeyDim <= NormalizeRows<32>::kMostHeld);
  constexpr int kWarps = PrepareDelta::kWarps;
  stream.launch({.x = (rows * (2 * args.key_heads + 1) + kWarps - 1) / kWarps, .threads = PrepareDelta::kThreads},
                PrepareDelta{.q = to_unit_length(args.q, 1.0f / std::sqrt(static_cast<float>(layout.rows))),
                             .k = to_unit_length(args.k, 1),
                             .decay = writable(args.decay),
                             .beta = writable(args.beta),
                             .factor = Global<const float>(args.factor),
                             .bias = Global<const float>(args.bias),
                             .heads = layout.heads});
  recur<Recurrence::kDelta>(stream, layout,
                            {.states = place_states(stream, lists, states, spans),
                             .keys = args.k,
                             .queries = args.q,
                             .values = args.v,
                             .first = args.decay,
                             .second = args.beta,
                             .key_heads = args.key_heads,
                             .interleaved = args.interleaved},
                            static_cast<int>(spans.size()));
}

void state_space(Stream& stream, SpanLists& lists, const LayerStates& states, const StateSpace& args,
                 std::span<const StateSpan> spans, int rows) {
  if (spans.empty()) return;
  const StateLayout& layout = states.layout;
  using Softplus = ForColumns<SoftplusRows>;
  stream.launch({.x = rows, .y = (layout.heads + Softplus::kCols - 1) / Softplus::kCols, .threads = Softplus::kThreads},
                Softplus{{writable(args.step), Global<const float>(args.bias)}, layout.heads, false});
  recur<Recurrence::kStateSpace>(stream, layout,
                                 {.states = place_states(stream, lists, states, spans),
                                  .keys = args.b,
                                  .queries = args.c,
                                  .values = args.x,
                                  .first = args.step,
                                  .second = args.step,
                                  .a = args.a,
                                  .d = args.d,
                                  .key_heads = args.groups},
                                 static_cast<int>(spans.size()));
}

}  // namespace quire::cuda
