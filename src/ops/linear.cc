#include "ops/linear.h"

#include <algorithm>
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

}  // namespace

InputMemory::InputMemory(std::byte* memory, int rows, int cols)
    : int8_(memory), floats_(memory ? memory + padded_rows(rows) * input_stride(Activations::kInt8, cols) : nullptr) {}

size_t InputMemory::bytes(int rows, int cols) {
  return padded_rows(rows) * (input_stride(Activations::kInt8, cols) + input_stride(Activations::kF32, cols));
}

Inputs InputMemory::prepare(const Compute& compute, const Rows& x, const NormView& norm, int rows,
                            std::span<const PackedMatrix* const> matrices) const {
  const Inputs inputs{int8_, floats_, input_stride(Activations::kInt8, x.cols),
                      input_stride(Activations::kF32, x.cols)};
  bool made[3] = {};
  for (const PackedMatrix* m : matrices) {
    const Activations to = activations_for(compute.activations, m->type);
    if (std::exchange(made[static_cast<size_t>(to)], true)) continue;
    quantize_rows(compute,
                  {.x = x.data,
                   .x_stride = x.stride,
                   .cols = x.cols,
                   .norm_weight = norm.kind == NormKind::kNone ? nullptr : norm.weight,
                   .epsilon = norm.epsilon,
                   .to = to,
                   .out = inputs.data(to),
                   .out_stride = inputs.stride(to)},
                  rows);
  }
  return inputs;
}

LinearArgs linear_args(const Compute& compute, const Inputs& x, const Linear& w, const Rows& y) {
  const Activations a = activations_for(compute.activations, w.weight.type);
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
