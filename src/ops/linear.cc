#include "ops/linear.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "ops/rows.h"

namespace quire {
namespace {

constexpr int kRowsPerQuantizeTile = 4;
// Tiles per thread: the others can take tiles from a thread that is slowed down.
constexpr int kTilesPerThread = 8;

size_t input_stride(Activations a, int cols) {
  return static_cast<size_t>((cols + kBlockInputs - 1) / kBlockInputs) * activation_block_bytes(a);
}

// Panels that a tile should consist of whole groups of, if that leaves enough tiles for all threads.
int panels_together(const Compute& compute, int panels) {
  const int together = compute.kernels.linear_panels;
  return panels >= 2 * together * compute.team.size() ? together : 1;
}

// The memory of each form, and of norms that are not fused.
struct Regions {
  size_t int8 = 0, floats = 0, scratch = 0;
};
Regions regions_of(std::span<const InputMemory::Need> needs) {
  Regions r;
  for (const InputMemory::Need& need : needs) {
    const size_t rows = padded_rows(need.rows);
    r.int8 = std::max(r.int8, rows * input_stride(Activations::kInt8, need.cols));
    r.floats = std::max(r.floats, rows * input_stride(Activations::kF32, need.cols));
    r.scratch = std::max(r.scratch, rows * row_stride(need.cols) * sizeof(float));
  }
  return r;
}

}  // namespace

InputMemory::InputMemory(std::byte* memory, std::span<const Need> needs) {
  if (!memory) return;
  const Regions regions = regions_of(needs);
  int8_ = memory;
  floats_ = int8_ + regions.int8;
  scratch_ = reinterpret_cast<float*>(floats_ + regions.floats);
}

size_t InputMemory::bytes(std::span<const Need> needs) {
  const Regions regions = regions_of(needs);
  return regions.int8 + regions.floats + regions.scratch;
}

Inputs InputMemory::of_cols(int cols) const {
  return {int8_, floats_, input_stride(Activations::kInt8, cols), input_stride(Activations::kF32, cols)};
}

Inputs InputMemory::prepare(const Compute& compute, const Rows& x, const NormView& norm, int rows,
                            std::span<const PackedMatrix* const> matrices, std::optional<Activations> as) const {
  const Inputs inputs = of_cols(x.cols);
  Rows from = x;
  const bool fused = norm.kind == NormKind::kRms && norm.weight;
  if (!fused && norm.kind != NormKind::kNone) {
    from = {scratch_, x.cols, row_stride(x.cols)};
    normalize(compute, x, norm, {from}, rows);
  }
  bool made[3] = {};
  for (const PackedMatrix* m : matrices) {
    const Activations to = as.value_or(activations_for(compute.activations, m->format));
    if (std::exchange(made[static_cast<size_t>(to)], true)) continue;
    quantize_rows(compute,
                  {.x = from.data,
                   .x_stride = from.stride,
                   .cols = x.cols,
                   .norm_weight = fused ? norm.weight : nullptr,
                   .epsilon = norm.epsilon,
                   .to = to,
                   .out = inputs.data(to),
                   .out_stride = inputs.stride(to)},
                  rows);
  }
  return inputs;
}

Inputs InputMemory::prepare_gathered(const Compute& compute, const Rows& x, std::span<const int32_t> sources,
                                     bool gathered, const PackedMatrix& matrix) const {
  const Inputs inputs = of_cols(x.cols);
  const Rows from = gathered ? x : Rows{scratch_, x.cols, row_stride(x.cols)};
  const Activations to = activations_for(compute.activations, matrix.format);
  const QuantizeArgs args{.x = from.data,
                          .x_stride = from.stride,
                          .cols = x.cols,
                          .to = to,
                          .out = inputs.data(to),
                          .out_stride = inputs.stride(to)};
  // Tiles of whole groups: rows of one group may share cache lines.
  const auto rows = static_cast<int>(sources.size());
  compute.team.for_tiles((rows + kRowGroup - 1) / kRowGroup, [&](int tile, int) {
    for (int row = tile * kRowGroup; row < std::min(rows, (tile + 1) * kRowGroup); ++row) {
      const int32_t source = sources[static_cast<size_t>(row)];
      if (source < 0) continue;
      if (!gathered) std::memcpy(from.row(row), x.row(source), sizeof(float) * static_cast<size_t>(x.cols));
      compute.kernels.quantize(args, row, row + 1);
    }
  });
  return inputs;
}

Inputs InputMemory::HeadInputs::at(int head) const {
  Inputs inputs = first;
  const auto row = static_cast<size_t>(head) * static_cast<size_t>(padded_rows);
  inputs.int8 += row * inputs.int8_stride;
  inputs.floats += row * inputs.float_stride;
  return inputs;
}

InputMemory::HeadInputs InputMemory::prepare_heads(const Compute& compute, const Rows& x, int heads, int stride,
                                                   int cols, int rows, const PackedMatrix& matrix) const {
  const HeadInputs inputs{of_cols(cols), head_rows(1, rows)};
  const Activations to = activations_for(compute.activations, matrix.format);
  const int row_tiles = (rows + kRowGroup - 1) / kRowGroup;
  compute.team.for_tiles(heads * row_tiles, [&](int tile, int) {
    const int head = tile / row_tiles, row = tile % row_tiles * kRowGroup;
    const Inputs out = inputs.at(head);
    compute.kernels.quantize({.x = x.data + static_cast<ptrdiff_t>(head) * stride,
                              .x_stride = x.stride,
                              .cols = cols,
                              .to = to,
                              .out = out.data(to),
                              .out_stride = out.stride(to)},
                             row, std::min(rows, row + kRowGroup));
  });
  return inputs;
}

LinearArgs linear_args(const Compute& compute, const Inputs& x, const Linear& w, const Rows& y,
                       std::optional<Activations> as) {
  const Activations a = as.value_or(activations_for(compute.activations, w.weight.format));
  return {.weights = &w.weight,
          .activations = a,
          .x = x.data(a),
          .x_stride = x.stride(a),
          .y = y.data,
          .y_stride = y.stride,
          .bias = w.bias_or_null()};
}

void quantize_rows(const Compute& compute, const QuantizeArgs& args, int rows) {
  const int tiles = (rows + kRowsPerQuantizeTile - 1) / kRowsPerQuantizeTile;
  compute.team.for_tiles(tiles, [&](int tile, int) {
    const int begin = tile * kRowsPerQuantizeTile;
    compute.kernels.quantize(args, begin, std::min(rows, begin + kRowsPerQuantizeTile));
  });
}

void linears(const Compute& compute, std::span<const LinearArgs> list, int rows) {
  int panels = 0;
  for (const LinearArgs& args : list) panels += args.weights->panels();
  const int group = panels_together(compute, panels);
  const auto groups_of = [group](const LinearArgs& args) { return (args.weights->panels() + group - 1) / group; };
  int groups = 0;
  for (const LinearArgs& args : list) groups += groups_of(args);
  const int wanted = compute.team.size() * kTilesPerThread;
  const int tile_rows = compute.kernels.linear_rows, row_tiles = (rows + tile_rows - 1) / tile_rows;
  const int group_tiles = std::clamp(wanted, 1, groups);
  compute.team.for_tiles(row_tiles * group_tiles, [&](int tile, int) {
    const int row_begin = tile / group_tiles * tile_rows, row_end = std::min(rows, row_begin + tile_rows);
    int begin = static_cast<int>(int64_t{groups} * (tile % group_tiles) / group_tiles);
    int end = static_cast<int>(int64_t{groups} * (tile % group_tiles + 1) / group_tiles);
    for (const LinearArgs& args : list) {  // the tile's panels, matrix by matrix
      const int count = groups_of(args);
      if (begin < count && end > 0) {
        compute.kernels.linear(args, std::max(0, begin) * group, std::min(end * group, args.weights->panels()),
                               row_begin, row_end);
      }
      begin -= count;
      end -= count;
    }
  });
}

void grouped_linears(const Compute& compute, std::span<const LinearPart> parts, std::vector<LinearTile>& tiles) {
  int panels = 0;
  for (const LinearPart& part : parts) panels += part.args.weights->panels();
  const int group = panels_together(compute, panels), tile_rows = compute.kernels.linear_rows;
  // Tiles of whole groups, as many panels as give every thread its share of the decoding work.
  const int share = std::max(1, panels / (compute.team.size() * kTilesPerThread)),
            tile_panels = (share + group - 1) / group * group;
  tiles.clear();
  for (size_t i = 0; i < parts.size(); ++i) {
    const LinearPart& part = parts[i];
    for (int row = part.row_begin; row < part.row_end; row += tile_rows) {
      for (int p = 0; p < part.args.weights->panels(); p += tile_panels) {
        tiles.push_back({static_cast<int>(i), p, std::min(p + tile_panels, part.args.weights->panels()), row,
                         std::min(part.row_end, row + tile_rows)});
      }
    }
  }
  compute.team.for_tiles(static_cast<int>(tiles.size()), [&](int i, int) {
    const LinearTile& t = tiles[static_cast<size_t>(i)];
    compute.kernels.linear(parts[static_cast<size_t>(t.part)].args, t.panel_begin, t.panel_end, t.row_begin, t.row_end);
  });
}

}  // namespace quire
