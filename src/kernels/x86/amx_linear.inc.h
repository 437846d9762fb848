// Linears on matrix tiles (x86/tiles.h). The sums are reference.cc's, in its order: a tile
// gives the sums of one group of weights for 16 outputs and up to 16 rows, the scaled additions follow in vector
// registers while the unit multiplies the next groups. Weights that are bf16 need no scale and stay in the tiles.

#include "kernels/denormals.h"
#include "kernels/x86/amx_paired.inc.h"
#include "kernels/x86/tiles.h"

namespace quire::QUIRE_ISA {
namespace {

// Rows below which int8 dot products in vector registers are faster: tiles cost the same for 1 row and 16
// (measured crossover on Granite Rapids: 10 to 11 rows of 4-bit weights with a scale per 32).
constexpr int kInt8TileRows = 11;
// Rows that share a decoded panel: 16 tiles. Their inputs of one chunk are 256 KiB, in L2.
constexpr int kMostRows = 256;
// Panels whose sums are kept from chunk to chunk: 256 KiB for 256 rows, in L2.
constexpr int kMostPanels = 16;

// bf16 weights: two panels by two groups of rows, or four panels by one group, so that four products are in flight. A
// missing panel or group is replaced by the last one, which is computed twice with the same result.
//
// Weights are prefetched when the first rows read them: a distance ahead. kPaired: the panels after these, a part of them
// for each two groups of rows, so that all rows share the time that memory takes.
template <int kPanels>
void multiply_bf16(Tiles& tiles, const Region& region, int panel, int group) {
  constexpr int kGroups = 4 / kPanels;
  const std::byte* w[kPanels];
  const Bf16Inputs* x[kGroups];
  float* sums[4];
  for (int i = 0; i < kPanels; ++i) {
    const int p = panel + i < region.panel_end ? panel + i : region.panel_end - 1;
    w[i] = region.m.panel(p) + region.m.layout.codes + static_cast<size_t>(region.block_begin) * 64 * kBlockInputs / 2;
    for (int j = 0; j < kGroups; ++j) {
      const int g = group + j < region.groups() ? group + j : region.groups() - 1;
      x[j] = region.inputs<Bf16Inputs>(g);
      sums[j * kPanels + i] = region.sums(p, g);
    }
  }
  const bool next = region.loop.kind == LinearLoop::Kind::kPaired;
  const size_t ahead = next ? kPanels * region.m.layout.bytes : region.loop.ahead;
  const int passes = (region.groups() + kGroups - 1) / kGroups, pass = group / kGroups;
  // Of each tile of 16 lines, those that this pass prefetches.
  const int first_line = next ? 16 * pass / passes : 0;
  const int last_line = next ? 16 * (pass + 1) / passes : 16 * (pass == 0);
  tiles.load<0>(sums[0], 64), tiles.load<1>(sums[1], 64);
  tiles.load<2>(sums[2], 64), tiles.load<3>(sums[3], 64);
  for (int b = region.block_begin; b < region.block_end; ++b) {
    const auto weights = [&]<int kTile>(int i) __attribute__((always_inline)) {
      for (int line = first_line; line < last_line; ++line)
        _mm_prefetch(reinterpret_cast<const char*>(w[i] + ahead + 64 * line), _MM_HINT_T0);
      tiles.load<kTile>(w[i], 64);
      w[i] += 64 * kBlockInputs / 2;
    };
    tiles.load<4>(x[0]++, 64);
    weights.template operator()<6>(0);
    tiles.dot_bf16<0, 4, 6>();
    weights.template operator()<7>(1);
    tiles.dot_bf16<1, 4, 7>();
    if constexpr (kPanels == 4) {
      weights.template operator()<6>(2);
      tiles.dot_bf16<2, 4, 6>();
      weights.template operator()<7>(3);
      tiles.dot_bf16<3, 4, 7>();
    } else {
      tiles.load<5>(x[1]++, 64);
      tiles.dot_bf16<2, 5, 6>();
      tiles.dot_bf16<3, 5, 7>();
    }
  }
  tiles.store<0>(sums[0], 64), tiles.store<1>(sums[1], 64);
  tiles.store<2>(sums[2], 64), tiles.store<3>(sums[3], 64);
}
void multiply_bf16_panels(TileMemory&, const Region& region) {
  Tiles tiles({region.rows < kRowGroup ? region.rows : kRowGroup, 64});
  if (region.groups() == 1) {
    for (int p = region.panel_begin; p < region.panel_end; p += 4) multiply_bf16<4>(tiles, region, p, 0);
    return;
  }
  for (int p = region.panel_begin; p < region.panel_end; p += 2) {
    for (int g = 0; g < region.groups(); g += 2) multiply_bf16<2>(tiles, region, p, g);
  }
}

// Rows and panels whose sums of a block are in registers together, two chains each.
constexpr int kFmaRows = 6, kFmaPanels = 2;

// A panel's weights of a block, decoded.
struct FmaWeights {
  alignas(64) float w[kBlockInputs][kPanel];
};

// Adds the products of a block of each panel with kRows rows of inputs to the panel's sums [kRows][kPanel].
template <int kRows, int kPanels>
void multiply_block(const FmaWeights* panels, const float (*x)[kBlockInputs], float* const* sums) {
  Floats even[kPanels][kRows], odd[kPanels][kRows];
  for (int i = 0; i < kPanels; ++i)
    for (int r = 0; r < kRows; ++r) even[i][r] = odd[i][r] = Floats::all(0.0f);
  for (int k = 0; k < kBlockInputs; k += 2) {
    Floats first[kPanels], second[kPanels];
    for (int i = 0; i < kPanels; ++i) {
      first[i] = Floats::load(panels[i].w[k]);
      second[i] = Floats::load(panels[i].w[k + 1]);
    }
    for (int r = 0; r < kRows; ++r) {
      const Floats a = Floats::all(x[r][k]), b = Floats::all(x[r][k + 1]);
      for (int i = 0; i < kPanels; ++i) {
        even[i][r] = fma(a, first[i], even[i][r]);
        odd[i][r] = fma(b, second[i], odd[i][r]);
      }
    }
  }
  for (int i = 0; i < kPanels; ++i) {
    for (int r = 0; r < kRows; ++r) {
      float* const to = sums[i] + r * kPanel;
      store(to, add(Floats::load(to), add(even[i][r], odd[i][r])));
    }
  }
}

// Weights that bf16 cannot represent: FMAs in vector registers. Inputs are widened once for all panels, weights once for all
// rows: both stay in L1.
template <Codes kCodes>
void multiply_floats(TileMemory&, const Region& region) {
  FmaWeights w[kFmaPanels];
  alignas(64) float x[kMostRows][kBlockInputs];
  const int tiles = (region.rows + kFmaRows - 1) / kFmaRows;
  for (int b = region.block_begin; b < region.block_end; ++b) {
    for (int row = 0; row < region.rows; ++row) {
      const Bf16Inputs& block = region.inputs<Bf16Inputs>(row / kRowGroup)[b - region.block_begin];
      for (int k = 0; k < kBlockInputs; ++k) x[row][k] = bf16_to_f32(block.x[row % kRowGroup][k]);
    }
    const auto multiply = [&]<int kPanels>(int p) {
      for (int i = 0; i < kPanels; ++i) {
        const FloatCodes<kCodes, false> from(region.m, p + i, 0);
        const auto decode = [&]<int kLine>() __attribute__((always_inline)) {
          Floats lines[8];
          from.template line<kLine>(b, 0, lines);
          for (int k = 0; k < 8; ++k) store(w[i].w[kLine * 8 + k], lines[k]);
        };
        decode.template operator()<0>(), decode.template operator()<1>();
        decode.template operator()<2>(), decode.template operator()<3>();
      }
      for (int tile = 0; tile < tiles; ++tile) {
        const int row = region.rows * tile / tiles, count = region.rows * (tile + 1) / tiles - row;
        float* sums[kPanels];
        for (int i = 0; i < kPanels; ++i) sums[i] = region.sums(p + i, 0) + row * kPanel;  // groups follow each other
        with_count<kFmaRows>(count, [&]<int kRows>() { multiply_block<kRows, kPanels>(w, x + row, sums); });
      }
    };
    int p = region.panel_begin;
    for (; p + kFmaPanels <= region.panel_end; p += kFmaPanels) multiply.template operator()<kFmaPanels>(p);
    for (; p < region.panel_end; ++p) multiply.template operator()<1>(p);
  }
}

// Adds a panel's products with the rows of a region to its sums.
using Multiply = void (*)(TileMemory&, const Region&);
// Weights in groups with a scale, of one kind of inputs.
template <class P, Codes kCodes>
void multiply_scaled(TileMemory& memory, const Region& region) {
  if constexpr (!P::kPairs) {
    if (region.loop.kind == LinearLoop::Kind::kPaired) {
      if (region.groups() > 1) return multiply_quads<P, kCodes>(region);
      if constexpr (has_pairs(kCodes, P::kGroup)) return multiply_pairs<P, kCodes>(memory, region);
    }
  }
  multiply_groups<P, kCodes>(memory, region);
}

Multiply find_multiply(const PanelFormat& format, Activations activations) {
  return with_format(format, [&]<Codes kCodes, int kGroup>() -> Multiply {
    if constexpr (kGroup == 0) {
      return kCodes == Codes::kBf16 ? multiply_bf16_panels : multiply_floats<kCodes>;
    } else {
      if constexpr (has_integer_codes(kCodes)) {
        if (has_int8_blocks(activations))
          return kGroup == 16 && has_two_levels(format) ? multiply_scaled<Int8Product<kGroup, kGroup == 16>, kCodes>
                                                        : multiply_scaled<Int8Product<kGroup>, kCodes>;
      }
      return multiply_scaled<Bf16Product<kGroup>, kCodes>;
    }
  });
}

// Adds `low`, the chain of minima times sums of inputs, to acc [groups of rows][kRowGroup][kPanel] of panel p.
void add_minima(const LinearArgs& a, const PackedMatrix& m, int p, int row_begin, int rows, float* acc) {
  if (!has_minima(m.format)) return;
  alignas(64) float scales[2 * kScaleBlocks * kPanel], minima[2 * kScaleBlocks * kPanel], low[kMostRows * kPanel];
  const int groups = groups_in_block(m.format);
  __builtin_memset(low, 0, sizeof(float) * static_cast<size_t>(rows * kPanel));
  for (int begin = 0; begin < m.blocks(); begin += kScaleBlocks) {
    const int end = begin + kScaleBlocks < m.blocks() ? begin + kScaleBlocks : m.blocks();
    const std::byte* x =
        a.x + static_cast<size_t>(row_begin) * a.x_stride + static_cast<size_t>(begin) * sizeof(Int8Block);
    if (has_int8_blocks(a.activations) && has_two_levels(m.format)) {
      decode_minimum_pairs(m, p, begin, end, minima, scales);
      add_two_level_low(minima, scales, end - begin, x, a.x_stride, rows, low);
      continue;
    }
    decode_scales(m, p, begin, end, scales);
    decode_minima(m, p, begin, end, scales, minima);
    if (has_int8_blocks(a.activations)) {
      add_low(
          minima, end - begin, groups, x, a.x_stride, sizeof(Int8Block), rows,
          low, [groups](const std::byte* block, int g) __attribute__((always_inline)) {
            const auto& input = *reinterpret_cast<const Int8Block*>(block);
            return groups == 2 ? group_sum<16>(input, g) : group_sum<kBlockInputs>(input, g);
          });
      continue;
    }
    for (int row = 0; row < rows; row += kRowGroup) {
      TileSingles::add_minima(minima, begin, end - begin, groups, row_group(a.x, a.x_stride, row_begin + row), 0,
                              rows - row < kRowGroup ? rows - row : kRowGroup, low + row * kPanel);
    }
  }
  for (int i = 0; i < rows * kPanel; i += kPanel) store(acc + i, add(Floats::load(acc + i), Floats::load(low + i)));
}

// Adds the products of the rows' outliers with panels [first, last) to acc [panels][.., kPanel], and to up_acc if there is
// an up matrix.
[[gnu::noinline]] void add_outliers(const LinearArgs& a, int first, int last, int row_begin, int rows,
                                    size_t panel_floats, float* acc, float* up_acc) {
  TileOutliers outliers;
  for (int row = 0, count = 0; row < rows; row += count) {
    const std::byte* x = a.x + static_cast<size_t>(row_begin + row) * a.x_stride;
    count = outliers.fill(x, a.x_stride, a.weights->cols, rows - row);
    outliers.add_products(*a.weights, first, last - first, panel_floats, acc + row * kPanel);
    if (a.up) outliers.add_products(*a.up, first, last - first, panel_floats, up_acc + row * kPanel);
  }
}

// At most kMostRows rows. Panels are processed in groups and K in chunks, so that reused data stays in a near cache.
void tile_rows(const LinearArgs& a, const LinearLoop& loop, int panel_begin, int panel_end, int row_begin, int rows) {
  alignas(64) TileMemory memory;
  __builtin_memset(memory.sums, 0, sizeof memory.sums);
  alignas(64) float acc[kMostPanels * kMostRows * kPanel];
  const int blocks = a.weights->blocks(), groups = (rows + kRowGroup - 1) / kRowGroup;
  // A single group of rows reads each panel once, from beginning to end. For more, chunks are of nearly equal size, and
  // begin with a float16 of two-level scales.
  const int chunks = (blocks + kChunk - 1) / kChunk, even = (blocks + chunks - 1) / chunks;
  const int chunk = groups == 1                         ? blocks
                    : has_two_levels(a.weights->format) ? (even + kSuperBlocks - 1) / kSuperBlocks * kSuperBlocks
                                                        : even;
  const size_t block_bytes = has_int8_blocks(a.activations) ? sizeof(Int8Block) : sizeof(Bf16Inputs);
  const Finish finish = find_finish(a.nonlinearity);
  const int most_panels = a.up ? kMostPanels / 2 : kMostPanels;
  const Multiply multiply = find_multiply(a.weights->format, a.activations),
                 multiply_up = a.up ? find_multiply(a.up->format, a.activations) : nullptr;
  float* const up_acc = acc + most_panels * groups * kRowGroup * kPanel;
  for (int first = panel_begin; first < panel_end; first += most_panels) {
    const int last = first + most_panels < panel_end ? first + most_panels : panel_end;
    const size_t bytes = static_cast<size_t>((last - first) * groups) * kRowGroup * kPanel * sizeof(float);
    __builtin_memset(acc, 0, bytes);
    if (a.up) __builtin_memset(up_acc, 0, bytes);
    for (int b = 0; b < blocks; b += chunk) {
      const int end = b + chunk < blocks ? b + chunk : blocks;
      const std::byte* x = row_group(a.x, a.x_stride, row_begin) + static_cast<size_t>(b) * block_bytes;
      multiply(memory, {*a.weights, first, last, b, end, rows, x, a.x_stride, loop, acc});
      if (a.up) multiply_up(memory, {*a.up, first, last, b, end, rows, x, a.x_stride, loop, up_acc});
    }
    const int panel_floats = groups * kRowGroup * kPanel;
    for (int p = first; p < last; ++p) {
      const int of_panel = (p - first) * panel_floats;
      add_minima(a, *a.weights, p, row_begin, rows, acc + of_panel);
      if (a.up) add_minima(a, *a.up, p, row_begin, rows, up_acc + of_panel);
    }
    if (a.activations == Activations::kInt8x2)
      add_outliers(a, first, last, row_begin, rows, static_cast<size_t>(panel_floats), acc, up_acc);
    for (int p = first; p < last; ++p) {
      const int of_panel = (p - first) * panel_floats;
      for (int g = 0; g < groups; ++g) {
        const int row = row_begin + g * kRowGroup,
                  count = rows - g * kRowGroup < kRowGroup ? rows - g * kRowGroup : kRowGroup;
        const int at = of_panel + g * kRowGroup * kPanel;
        finish(a, p, row, count, acc + at, a.up ? up_acc + at : nullptr);
      }
    }
  }
}

// The product of LinearLoop::Kind::kStream over inputs in tile order.
Product find_tile_stream(const PanelFormat& format) {
  return with_format(format, []<Codes kCodes, int kGroup>() -> Product {
    if constexpr (kGroup == 0 && kCodes != Codes::kBf16) return nullptr;
    return float_streams<TileSingles, kCodes, kGroup>;
  });
}

// What is first was the best for as many rows on Emerald Rapids, or in the prototypes that were measured there.
size_t tile_loops(const PackedMatrix& m, Activations activations, int rows,
                  std::span<LinearLoop, kMostLinearLoops> loops) {
  using Kind = LinearLoop::Kind;
  const bool int8 = has_int8_blocks(activations);
  if ((!int8 && activations != Activations::kBf16) || (int8 && rows < kFewestBeside))
    return avx512_kernels()->linear_loops(m, activations, rows, loops);
  size_t count = 0;
  const auto add = [&](Kind kind, int panels = 1, uint16_t ahead = kDistances[0]) {
    loops[count++] = {.kind = kind, .panels = static_cast<uint8_t>(panels), .ahead = ahead};
  };
  if (!has_scales(m.format) && m.format.codes != Codes::kBf16) return add(Kind::kTiles), count;
  const bool pairs = !(int8 && m.format.group == 16) &&
                     (rows > kRowGroup || has_pairs(m.format.codes, m.format.group) || m.format.codes == Codes::kBf16);
  if (int8) {
    if (rows < kInt8TileRows) add(Kind::kShared, kFloatPanels);
  } else if (rows <= 4) {
    for (const uint16_t ahead : kDistances) {
      for (int panels = most_streams(m.format.codes, m.format.group); panels > 0; panels /= 2)
        add(Kind::kStream, panels, ahead);
    }
  }
  if (pairs && m.format.codes != Codes::kBf16) {
    if (rows > kRowGroup) add(Kind::kPaired, 4), add(Kind::kPaired, 1);
    add(Kind::kPaired, 2);
  }
  add(Kind::kTiles);
  if (pairs && m.format.codes == Codes::kBf16) add(Kind::kPaired);
  if (int8 && rows >= kInt8TileRows) add(Kind::kShared, kFloatPanels);
  return count;
}

void tile_linear(const LinearArgs& a, int panel_begin, int panel_end, int row_begin, int row_end) {
  using Kind = LinearLoop::Kind;
  const LinearLoop loop = a.loop ? *a.loop : first_loop(tile_loops, a, row_end - row_begin);
  if (a.activations != Activations::kBf16 && (loop.kind == Kind::kStream || loop.kind == Kind::kShared)) {
    LinearArgs with_loop = a;
    with_loop.loop = &loop;
    return avx512_kernels()->linear(with_loop, panel_begin, panel_end, row_begin, row_end);
  }
  const FlushDenormals flush(a.activations == Activations::kBf16);
  const Product product = loop.kind == Kind::kStream ? find_tile_stream(a.weights->format) : nullptr,
                up = product && a.up ? find_tile_stream(a.up->format) : nullptr;
  // The loop is chosen by the first matrix alone: the other may have none of this kind.
  if (product && (!a.up || up)) {
    for (int row = row_begin; row < row_end; row += kRowGroup) {
      run_panels(a, loop, product, up, row_group(a.x, a.x_stride, row), panel_begin, panel_end, row,
                 row_end - row < kRowGroup ? row_end - row : kRowGroup);
    }
    return;
  }
  for (int row = row_begin; row < row_end; row += kMostRows)
    tile_rows(a, loop, panel_begin, panel_end, row, row_end - row < kMostRows ? row_end - row : kMostRows);
}

// Four sums: the latency of a product (52 cycles) is hidden by three others of 16 cycles each.
double tile_peak(Activations activations, int64_t rounds) {
  if (activations == Activations::kF32) return avx512_kernels()->peak(activations, rounds);
  alignas(64) std::byte tile[kRowGroup * 64];
  __builtin_memset(tile, 1, sizeof tile);
  Tiles tiles({kRowGroup, 64});
  tiles.load<4>(tile, 64), tiles.load<6>(tile, 64);
  tiles.zero<0>(), tiles.zero<1>(), tiles.zero<2>(), tiles.zero<3>();
  const bool int8 = activations == Activations::kInt8;
  for (int64_t i = 0; i < rounds; ++i) {
    if (int8) {
      tiles.dot_int8<0, 4, 6>(), tiles.dot_int8<1, 4, 6>();
      tiles.dot_int8<2, 4, 6>(), tiles.dot_int8<3, 4, 6>();
    } else {
      tiles.dot_bf16<0, 4, 6>(), tiles.dot_bf16<1, 4, 6>();
      tiles.dot_bf16<2, 4, 6>(), tiles.dot_bf16<3, 4, 6>();
    }
  }
  return static_cast<double>(rounds) * 4 * kRowGroup * kPanel * (int8 ? 64 : 32);
}

}  // namespace
}  // namespace quire::QUIRE_ISA
