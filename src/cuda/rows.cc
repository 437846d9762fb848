#include "cuda/rows.h"

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>

#include "cuda/kernels/normalize.h"
#include "cuda/kernels/row_statistics.h"
#include "cuda/kernels/rows.h"
#include "cuda/row_arguments.h"

namespace quire::cuda {
namespace {

template <class Work>
void for_columns(Stream& stream, const Work& work, int rows, int cols, bool aligned) {
  using Kernel = ForColumns<Work>;
  stream.launch({.x = rows, .y = (cols + Kernel::kCols - 1) / Kernel::kCols, .threads = Kernel::kThreads},
                Kernel{work, cols, aligned});
}

void scale_to(Stream& stream, const Rows& x, float scale, const Target& target, int rows) {
  for_columns(stream, ScaleRowsBy{readable(x), writable(target.to), scale, target.accumulate}, rows, x.cols,
              is_aligned(x) && is_aligned(target.to));
}

template <int kGroupThreads>
void launch_normalize(Stream& stream, const NormalizeRows<kGroupThreads>& kernel) {
  using Kernel = NormalizeRows<kGroupThreads>;
  stream.launch({.x = (kernel.rows * kernel.groups + Kernel::kGroups - 1) / Kernel::kGroups,
                 .threads = Kernel::kThreads,
                 .shared_bytes = Kernel::kSharedBytes},
                kernel);
}

}  // namespace

void normalize(Stream& stream, const Rows& x, const NormView& norm, const Target& target, int rows) {
  normalize(stream, x, {.norm = norm, .groups = 1, .weight_stride = 0}, target, rows);
}

void normalize(Stream& stream, const Rows& x, const HeadNorm& heads, const Target& target, int rows) {
  const NormView& norm = heads.norm;
  if (norm.kind == NormKind::kNone && !norm.weight && !norm.bias)
    return scale_to(stream, x, target.scale, target, rows);
  const int size = x.cols / heads.groups;
  const auto launch = [&]<int kGroupThreads>() {
    launch_normalize(stream, NormalizeRows<kGroupThreads>{
                                 .kind = norm.kind,
                                 .accumulate = target.accumulate,
                                 .aligned = is_aligned(x) && is_aligned(target.to) && is_aligned(norm.weight) &&
                                            is_aligned(norm.bias) && heads.weight_stride % 4 == 0 &&
                                            (heads.groups == 1 || size % 4 == 0),
                                 .rows = rows,
                                 .groups = heads.groups,
                                 .size = size,
                                 .x = readable(x),
                                 .y = writable(target.to),
                                 .weight = Global<const float>(norm.weight),
                                 .bias = Global<const float>(norm.bias),
                                 .weight_stride = heads.weight_stride,
                                 .epsilon = norm.epsilon,
                                 .scale = target.scale,
                             });
  };
  if (size <= NormalizeRows<32>::kMostHeld) {
    launch.template operator()<32>();
  } else {
    launch.template operator()<512>();
  }
}

void add(Stream& stream, const Rows& x, float scale, const Rows& to, int rows) {
  scale_to(stream, x, scale, {.to = to, .scale = 1, .accumulate = true}, rows);
}

void add_gated(Stream& stream, const Rows& x, const Rows& gate, float scale, const Rows& to, int rows) {
  for_columns(stream, AddGatedRows{readable(x), readable(gate), writable(to), scale}, rows, x.cols,
              is_aligned(x) && is_aligned(to));
}

void scale(Stream& stream, const Rows& x, float by, int rows) {
  scale_to(stream, x, by, {.to = x, .scale = 1, .accumulate = false}, rows);
}

void cut_below(Stream& stream, const Rows& x, float deviations, int rows) {
  stream.launch({.x = rows, .threads = CutRowsBelow::kThreads, .shared_bytes = RowStatistics::kSharedBytes},
                CutRowsBelow{writable(x), x.cols, deviations});
}

void match_magnitude(Stream& stream, const Rows& x, const Rows& like, int rows) {
  stream.launch({.x = rows, .threads = MatchRowMagnitudes::kThreads, .shared_bytes = RowStatistics::kSharedBytes},
                MatchRowMagnitudes{writable(x), readable(like), x.cols, like.cols});
}

void combine(Stream& stream, std::span<const Rows> x, const Rows& coefficients, const Target& target, int rows) {
  constexpr size_t kMost = CombineRows::kMostInputs;
  for (size_t first = 0; first < x.size(); first += kMost) {
    const std::span<const Rows> part = x.subspan(first, std::min(kMost, x.size() - first));
    CombineRows work{.x = {},
                     .coefficients = readable(coefficients.columns(static_cast<int>(first), 0)),
                     .to = writable(target.to),
                     .inputs = static_cast<int>(part.size()),
                     .scale = target.scale,
                     .accumulate = target.accumulate || first > 0};
    bool aligned = is_aligned(target.to);
    for (size_t i = 0; i < part.size(); ++i) {
      assert(part[i].data != target.to.data);
      work.x[i] = readable(part[i]);
      aligned = aligned && is_aligned(part[i]);
    }
    for_columns(stream, work, rows, target.to.cols, aligned);
  }
}

void tanh(Stream& stream, const Rows& x, int rows) { soft_cap(stream, x, 1, rows); }

void soft_cap(Stream& stream, const Rows& x, float cap, int rows) {
  for_columns(stream, SoftCapRows{writable(x), cap}, rows, x.cols, is_aligned(x));
}

void copy(Stream& stream, const Rows& x, const Rows& to, int rows) {
  for_columns(stream, GatherRows{readable(x), Global<const int32_t>(nullptr), writable(to)}, rows, x.cols,
              is_aligned(x) && is_aligned(to));
}

void gather(Stream& stream, const Rows& x, std::span<const int32_t> rows, const Rows& to) {
  if (rows.empty()) return;
  for_columns(stream, GatherRows{readable(x), Global<const int32_t>(stream.place(rows)), writable(to)},
              static_cast<int>(rows.size()), x.cols, is_aligned(x) && is_aligned(to));
}

void copy_heads(Stream& stream, const Rows& x, const HeadColumns& c, const Rows& y, int rows) {
  const bool aligned =
      is_aligned(x) && is_aligned(y) && (c.count | c.from | c.from_stride | c.to | c.to_stride) % 4 == 0;
  for_columns(stream, CopyHeads{readable(x), writable(y), c.count, c.from, c.from_stride, c.to, c.to_stride}, rows,
              c.heads * c.count, aligned);
}

void multiply_gate(Stream& stream, const Rows& y, const Rows& gate, Nonlinearity f, int rows) {
  assert(f != Nonlinearity::kClampedSwiglu);
  for_columns(stream, GateRows{writable(y), readable(gate), f}, rows, y.cols, is_aligned(y) && is_aligned(gate));
}

void upload(Stream& stream, std::span<const float> from, float* to) {
  // A step has 32 MiB for all values of the host, so a batch of images' embeddings must not go there.
  constexpr size_t kMostPlaced = size_t{1} << 18;
  if (from.empty()) return;
  if (from.size() > kMostPlaced) {
    stream.finish();
    stream.device().upload(reinterpret_cast<std::byte*>(to), reinterpret_cast<const std::byte*>(from.data()),
                           from.size_bytes());
    return;
  }
  constexpr int kCols = 4096;  // any number: the values are cut into rows of this size for more blocks
  const float* placed = stream.place(from);
  const auto rows_of = [](const float* p, size_t at) {
    return Rows{const_cast<float*>(p) + at, kCols, static_cast<size_t>(kCols)};
  };
  const size_t whole = from.size() / kCols * kCols;
  copy(stream, rows_of(placed, 0), rows_of(to, 0), static_cast<int>(whole / kCols));
  if (whole == from.size()) return;
  Rows rest = rows_of(placed, whole);
  rest.cols = static_cast<int>(from.size() - whole);
  copy(stream, rest, rows_of(to, whole), 1);
}

}  // namespace quire::cuda
