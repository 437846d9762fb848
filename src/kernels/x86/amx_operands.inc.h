// What tile loads read: inputs in groups of 16 rows, and blocks of packed weights decoded to lines of a tile.

#include "base/half.h"
#include "kernels/kernels.h"
#include "kernels/vector/linear.inc.h"
#include "kernels/vector/quantize.inc.h"
#include "kernels/x86/vector.h"

namespace quire::QUIRE_ISA {
namespace {

// Blocks of K that are multiplied for all rows before the next: a panel's decoded chunk, 16 KiB of bf16, stays in L1
// while inputs stream past it from L2 (which feeds tile loads 26 to 30 bytes a cycle; a product takes about 37 cycles a
// KiB).
constexpr int kChunk = 16;

// Inputs of a group of 16 rows in tile order, as tile_quantize() writes them. int8 inputs are read in place, from the
// Int8Blocks of rows x_stride apart: copying them to tile order took a third of the time of two panels.
struct Bf16Inputs {
  uint16_t x[kRowGroup][kBlockInputs];
  float half_sums[2][kRowGroup];  // FloatBlock::half_sums
};
static_assert(sizeof(Bf16Inputs) <= kRowGroup * sizeof(FloatBlock));
static_assert(sizeof(Bf16Inputs) % 64 == 0);

// Block 0 of the group of rows that `row` belongs to.
QUIRE_INLINE const std::byte* row_group(const std::byte* x, size_t x_stride, int row) {
  return x + static_cast<size_t>(row / kRowGroup * kRowGroup) * x_stride;
}

QUIRE_INLINE void write_bf16(Floats16 x0, Floats16 x1, uint16_t* x, float (&half_sums)[2]) {
  const Floats16 halves[2] = {to_bf16(x0), to_bf16(x1)};
  alignas(64) float rounded[kBlockInputs];
  for (int half = 0; half < 2; ++half) {
    _mm256_store_si256(reinterpret_cast<__m256i*>(x + half * kLanes),
                       _mm512_cvtepi32_epi16(shift_right<16>(bits(halves[half])).v));
    store(rounded + half * kLanes, halves[half]);
  }
  float sum;
  write_sums(rounded, sum, half_sums);
}

void tile_quantize(const QuantizeArgs& a, int row_begin, int row_end) {
  if (a.to != Activations::kBf16) return avx512_kernels()->quantize(a, row_begin, row_end);
  for (int row = row_begin; row < row_end; ++row) {
    std::byte* group = a.out + static_cast<size_t>(row / kRowGroup * kRowGroup) * a.out_stride;
    RowInputs(a, row).for_each_block([&](int b, Floats16 x0, Floats16 x1) __attribute__((always_inline)) {
      Bf16Inputs& block = reinterpret_cast<Bf16Inputs*>(group)[b];
      float half_sums[2];
      write_bf16(x0, x1, block.x[row % kRowGroup], half_sums);
      for (int half = 0; half < 2; ++half) block.half_sums[half][row % kRowGroup] = half_sums[half];
    });
  }
}

// Steps of LinearLoop::Kind::kStream over inputs in tile order: two of them share a dword.
struct TileSingles {
  static constexpr int kLine = 8;
  struct Row {
    const Bf16Inputs* block;
    int row;
  };
  // x: of the group of rows.
  QUIRE_INLINE Row row(const std::byte* x, size_t /*x_stride*/, int row, int block) {
    return {reinterpret_cast<const Bf16Inputs*>(x) + block, row};
  }
  QUIRE_INLINE Floats input(Row x, int step) {
    int32_t both;
    __builtin_memcpy(&both, &x.block->x[x.row][step / 2 * 2], sizeof both);
    return bits(step % 2 == 0 ? shift_left<16>(Ints::all(both)) : band(Ints::all(both), Ints::all(-65536)));
  }
  QUIRE_INLINE Floats multiply(Floats x, Floats w, Floats sum) { return fma(x, w, sum); }
  template <int kGroup>
  QUIRE_INLINE float sum(Row x, int g) {
    const auto& sums = x.block->half_sums;
    return kGroup == 16 ? sums[g][x.row] : sums[0][x.row] + sums[1][x.row];
  }
  // As InBlocks::add_minima(), of at most kRowGroup rows: the sums of a group's rows lie side by side.
  QUIRE_INLINE void add_minima(const float* minima, int begin, int blocks, int groups, const std::byte* x,
                               size_t /*x_stride*/, int rows, float* low) {
    x += static_cast<size_t>(begin) * sizeof(Bf16Inputs) + offsetof(Bf16Inputs, half_sums);
    add_low(
        minima, blocks, groups, x, sizeof(float), sizeof(Bf16Inputs), rows,
        low, [groups](const std::byte* sums, int g) __attribute__((always_inline)) {
          const auto* halves = reinterpret_cast<const float*>(sums);
          return groups == 2 ? halves[g * kRowGroup] : halves[0] + halves[kRowGroup];
        });
  }
};

// What decode_bf16_line() needs of a format: for codes of up to 6 bits, bf16 of what each stands for, repeated to fill
// the table of a permutation of 16-bit words.
struct TileDecoder {
  alignas(64) uint16_t words[64];

  explicit TileDecoder(const PanelFormat& f) {
    const auto value = [&f](int code) {
      return f.codes == Codes::kTable4 || f.codes == Codes::kFloat4 ? f.table[static_cast<size_t>(code % 16)]
                                                                    : static_cast<float>(code - f.zero);
    };
    const int bits = code_bits(f.codes);
    if (bits > 6) return;
    for (int i = 0; i < 64; ++i) words[i] = f32_to_bf16(value(i & ((1 << bits) - 1)));
  }
};

// Line kLine of a block (8 inputs) as lines of a bf16 tile: inputs 2r and 2r + 1 of 16 outputs.
template <Codes kCodes, int kLine>
QUIRE_INLINE void decode_bf16_line(const TileDecoder& decoder, const PackedCodes<kCodes>& codes,
                                   const FloatCodes<kCodes, true>& floats, int b, std::byte* out) {
  constexpr int kBits = code_bits(kCodes);
  std::byte* lines = out + 4 * 64 * kLine;
  if constexpr (kBits == 8) {
    Floats w[8];
    floats.template line<kLine>(b, 0, w);
    for (int r = 0; r < 4; ++r) {
      const __m512i high = _mm512_and_si512(_mm512_castps_si512(w[2 * r + 1].v), _mm512_set1_epi32(-65536));
      _mm512_store_si512(lines + 64 * r, _mm512_or_si512(_mm512_srli_epi32(_mm512_castps_si512(w[2 * r].v), 16), high));
    }
  } else {
    const LinePair w = codes.template raw<kLine>(b, 0);  // bytes of inputs 0, 4, 1, 5 and 2, 6, 3, 7
    const __m512i low = _mm512_load_si512(decoder.words), high = _mm512_load_si512(decoder.words + 32);
    const auto put = [&](int r, __m512i words) __attribute__((always_inline)) {  // the low 5 or 6 bits of each count
      _mm512_store_si512(lines + 64 * r, kBits == 6 ? _mm512_permutex2var_epi16(low, words, high)
                                                    : _mm512_permutexvar_epi16(words, low));
    };
    put(0, w.low.v);
    put(1, w.high.v);
    put(2, _mm512_srli_epi16(w.low.v, 8));
    put(3, _mm512_srli_epi16(w.high.v, 8));
  }
}

// As lines of an int8 tile: four inputs, in kPairOrder, of 16 outputs.
template <Codes kCodes, int kLine>
QUIRE_INLINE void decode_int8_line(const PackedCodes<kCodes>& codes, int b, std::byte* out) {
  const LinePair w = codes.template line<kLine>(b, 0);
  const __m512i zero = _mm512_set1_epi8(static_cast<char>(codes.zero()));
  _mm512_store_si512(out + 128 * kLine, _mm512_sub_epi8(w.low.v, zero));
  _mm512_store_si512(out + 128 * kLine + 64, _mm512_sub_epi8(w.high.v, zero));
}

}  // namespace
}  // namespace quire::QUIRE_ISA
