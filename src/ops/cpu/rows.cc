#include "ops/cpu/rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/kernels.h"
#include "kernels/packed.h"
#include "kernels/rows.h"

namespace quire {
namespace {

NormArgs scaling(const Rows& x, float scale, const Rows& to, bool accumulate) {
  return {.kind = NormKind::kNone,
          .x = x.data,
          .x_stride = x.stride,
          .y = to.data,
          .y_stride = to.stride,
          .size = x.cols,
          .scale = scale,
          .accumulate = accumulate};
}

}  // namespace

void embed(const Compute& compute, const PackedMatrix& matrix, std::span<const int32_t> ids, float scale,
           const Rows& x) {
  for_row_tiles(compute, static_cast<int>(ids.size()), [&](int begin, int end) {
    for (int r = begin; r < end; ++r) {
      const int32_t id = ids[static_cast<size_t>(r)];
      if (id < 0) continue;
      unpack_row(matrix, id, x.row(r));
      if (scale != 1) compute.kernels.normalize(scaling(x, scale, x, false), r, r + 1);
    }
  });
}

void add_embeddings(const Compute& compute, const PackedMatrix& matrix, std::span<const int32_t> ids, float scale,
                    const Rows& scratch, const Rows& x) {
  for_row_tiles(compute, static_cast<int>(ids.size()), [&](int begin, int end) {
    for (int r = begin; r < end; ++r) unpack_row(matrix, ids[static_cast<size_t>(r)], scratch.row(r));
    compute.kernels.normalize(scaling(scratch, scale, x, true), begin, end);
  });
}

void normalize(const Compute& compute, const Rows& x, const NormView& norm, const Target& target, int rows) {
  normalize(compute, x, {.norm = norm, .groups = 1}, target, rows);
}

void normalize(const Compute& compute, const Rows& x, const HeadNorm& heads, const Target& target, int rows) {
  const NormView& norm = heads.norm;
  NormArgs args = scaling(x, target.scale, target.to, target.accumulate);
  args.kind = norm.kind;
  args.size = x.cols / heads.groups;
  args.groups = heads.groups;
  args.weight = norm.weight;
  args.bias = norm.bias;
  args.weight_stride = heads.weight_stride;
  args.epsilon = norm.epsilon;
  for_row_tiles(compute, rows, [&](int begin, int end) { compute.kernels.normalize(args, begin, end); });
}

void add(const Compute& compute, const Rows& x, float scale, const Rows& to, int rows) {
  for_row_tiles(compute, rows,
                [&](int begin, int end) { compute.kernels.normalize(scaling(x, scale, to, true), begin, end); });
}

void add_gated(const Compute& compute, const Rows& x, const Rows& gate, float scale, const Rows& to, int rows) {
  for_row_tiles(compute, rows, [&](int begin, int end) {
    for (int r = begin; r < end; ++r) {
      compute.kernels.sigmoid(gate.row(r), 1);
      compute.kernels.normalize(scaling(x, gate.row(r)[0] * scale, to, true), r, r + 1);
    }
  });
}

void scale(const Compute& compute, const Rows& x, float by, int rows) {
  for_row_tiles(compute, rows,
                [&](int begin, int end) { compute.kernels.normalize(scaling(x, by, x, false), begin, end); });
}

void clear(const Compute& compute, const Rows& x, int rows) {
  for_row_tiles(compute, rows, [&](int begin, int end) {
    for (int r = begin; r < end; ++r) std::memset(x.row(r), 0, sizeof(float) * static_cast<size_t>(x.cols));
  });
}

// Sums of a row in double, in order: the same on every kernel set.
void cut_below(const Compute& compute, const Rows& x, float deviations, int rows) {
  for_row_tiles(compute, rows, [&](int begin, int end) {
    for (int r = begin; r < end; ++r) {
      const std::span<float> row(x.row(r), static_cast<size_t>(x.cols));
      double sum = 0, squares = 0;
      for (const float value : row) sum += value;
      const double mean = sum / x.cols;
      for (const float value : row) squares += (value - mean) * (value - mean);
      const auto cutoff = static_cast<float>(mean + deviations * std::sqrt(squares / x.cols));
      for (float& value : row) value = std::max(0.0f, value - cutoff);
    }
  });
}

void match_magnitude(const Compute& compute, const Rows& x, const Rows& like, int rows) {
  const auto mean_square = [](const float* row, int cols) {
    double squares = 0;
    for (int i = 0; i < cols; ++i) squares += double{row[i]} * row[i];
    return squares / cols;
  };
  constexpr double kSmallest = 1e-5;
  for_row_tiles(compute, rows, [&](int begin, int end) {
    for (int r = begin; r < end; ++r) {
      const double ratio = std::sqrt(mean_square(like.row(r), like.cols)) /
                           std::sqrt(std::max(mean_square(x.row(r), x.cols), kSmallest));
      compute.kernels.normalize(scaling(x, static_cast<float>(ratio), x, false), r, r + 1);
    }
  });
}

void combine(const Compute& compute, std::span<const Rows> x, const Rows& coefficients, const Target& target,
             int rows) {
  for_row_tiles(compute, rows, [&](int begin, int end) {
    for (int r = begin; r < end; ++r) {
      for (size_t i = 0; i < x.size(); ++i)
        compute.kernels.normalize(
            scaling(x[i], coefficients.row(r)[i] * target.scale, target.to, target.accumulate || i > 0), r, r + 1);
    }
  });
}

void tanh(const Compute& compute, const Rows& x, int rows) {
  for_row_tiles(compute, rows, [&](int begin, int end) {
    for (int r = begin; r < end; ++r) compute.kernels.soft_cap(x.row(r), x.cols, 1);
  });
}

void copy(const Compute& compute, const Rows& x, const Rows& to, int rows) {
  for_row_tiles(compute, rows, [&](int begin, int end) {
    for (int r = begin; r < end; ++r) std::memcpy(to.row(r), x.row(r), sizeof(float) * static_cast<size_t>(x.cols));
  });
}

void multiply_gate(const Compute& compute, const Rows& y, const Rows& gate, Nonlinearity f, int rows) {
  for_row_tiles(compute, rows, [&](int begin, int end) {
    compute.kernels.multiply_gate({.y = y.data,
                                   .y_stride = y.stride,
                                   .gate = gate.data,
                                   .gate_stride = gate.stride,
                                   .cols = y.cols,
                                   .nonlinearity = f},
                                  begin, end);
  });
}

void gather(const Compute& compute, const Rows& x, std::span<const int32_t> rows, const Rows& to) {
  for_row_tiles(compute, static_cast<int>(rows.size()), [&](int begin, int end) {
    for (int r = begin; r < end; ++r)
      std::memcpy(to.row(r), x.row(rows[static_cast<size_t>(r)]), sizeof(float) * static_cast<size_t>(x.cols));
  });
}

void copy_heads(const Compute& compute, const Rows& x, const HeadColumns& c, const Rows& y, int rows) {
  for_row_tiles(compute, rows, [&](int begin, int end) {
    for (int r = begin; r < end; ++r) {
      for (int h = 0; h < c.heads; ++h)
        std::memcpy(y.row(r) + h * c.to_stride + c.to, x.row(r) + h * c.from_stride + c.from,
                    sizeof(float) * static_cast<size_t>(c.count));
    }
  });
}

// In one loop for a single span, so that a prompt's rows go to all threads.
void rotations(const Compute& compute, std::span<const RotationSpan> spans, const Rows& to) {
  const auto fill = [&](const RotationSpan& span, int begin, int end) {
    for (int r = begin; r < end; ++r) span.table->at(span.position + r, to.row(span.row + r));
  };
  if (spans.size() == 1)
    return for_row_tiles(compute, spans[0].rows, [&](int begin, int end) { fill(spans[0], begin, end); });
  compute.team.for_tiles(static_cast<int>(spans.size()), [&](int i, int) {
    const RotationSpan& span = spans[static_cast<size_t>(i)];
    fill(span, 0, span.rows);
  });
}

void soft_cap(const Compute& compute, const Rows& x, float cap, int rows) {
  compute.team.for_tiles(rows, [&](int r, int) { compute.kernels.soft_cap(x.row(r), x.cols, cap); });
}

}  // namespace quire
