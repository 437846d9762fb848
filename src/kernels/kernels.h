// The contracts of the tile operations, and the table of them that each instruction set fills.
//
// A row's or panel's result depends on its own inputs alone. It has the same bits whatever the tile, thread or batch,
// and in every KernelSet (docs/exactness.md). reference.cc is the definition in plain code; tests compare the other
// sets with it by memcmp. ops.h runs these operations over a Team. rows.h has the contracts of norms and of other
// functions on rows, recurrent.h those of layers with a state.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>

#include "kernels/packed.h"
#include "kernels/types.h"

namespace quire {

struct NormArgs;  // kernels/rows.h
struct GateArgs;
struct SoftplusArgs;
struct ShortConvArgs;  // kernels/recurrent.h
struct GatedDeltaArgs;
struct Mamba2Args;

// quantize() turns each row of inputs into an array of blocks of 32, padded with zeros; linear() reads them. A kernel
// set may lay out kBf16 blocks in its own way, within the same bytes for each kRowGroup rows (the last group may be
// partial). So only the set that quantized a row can read it.
inline constexpr float kSmallestInt8 = 0x1p-121f;  // blocks of smaller inputs become zeros: keeps 127 / max finite
struct Int8Block {
  int8_t q[kBlockInputs];  // input = scale * q, in kPairOrder within each eight; |q| <= 127
  float scale;             // max |input| / 127; NaN if an input is NaN
  float sum;               // scale * (sum of q): the factor of a minimum
  int16_t half_sums[2];    // sums of q over inputs 0..15 and 16..31; a group of 16 has scale * its half
  uint32_t outliers;       // kInt8x2, of a row's first block: their number; otherwise 0
};
// A row of kInt8x2 is its Int8Blocks, in which outliers are 0, and then its outliers in the order of their inputs. These
// are the inputs whose magnitude is at least
//
//   QuantizeArgs::outlier_ratio * (sum / cols)      sum: of |x| after the norm, in 16 interleaved chains, added as a tree
//
// There are none if sum / cols is below kSmallestOutliers, infinite or NaN, and none in a block with which the row would have
// more than kMostOutliers. At most cols / outlier_ratio inputs are outliers; there is room for kBlockOutliers for each block.
//
// The outliers themselves hardly raise the mean magnitude, unlike the root mean square. So one ratio works for rows with
// outliers and sets apart next to nothing in rows that are normally distributed.
struct Outlier {
  int32_t input;
  float x;
};
inline constexpr float kSmallestOutliers = 0x1p-100f;
inline constexpr int kBlockOutliers = 7, kMostOutliers = 16384;
inline constexpr float kLeastOutlierRatio = 5;  // the least that outlier_ratio may be
static_assert(kBlockOutliers * kLeastOutlierRatio > kBlockInputs);
struct FloatBlock {  // kF32; kBf16: rounded to bf16, kept in float32
  float x[kBlockInputs];
  float sum;           // kBf16: half_sums[0] + half_sums[1]
  float half_sums[2];  // kBf16: of inputs 0..15 and 16..31: (x0 + x2 + ...) + (x1 + x3 + ...), each in order
  float unused;
};
// kInt8Row. Inputs of a magnitude of at least QuantizeArgs::threshold are outliers: they stay as they are, and do not count for the
// scale (LLM.int8(): arXiv 2208.07339; there the columns of a whole batch are outliers, here those of each row, so that
// a row does not depend on its neighbours).
struct Int8RowBlock {
  int8_t q[kBlockInputs];  // input = scale * q, in kPairOrder within each eight; |q| <= 127; of outliers 0
  float scale;             // the row's: max |input| / 127; NaN if an input is NaN
  int32_t sum;             // sum of q
  uint32_t outliers;       // bit i: input i is one
  float unused;
  uint16_t x[kBlockInputs];  // outlier_f16() of outliers; undefined for other inputs
};
constexpr size_t activation_block_bytes(Activations a) {
  switch (a) {
    case Activations::kInt8:
      return sizeof(Int8Block);
    case Activations::kInt8x2:
      return sizeof(Int8Block) + kBlockOutliers * sizeof(Outlier);
    case Activations::kInt8Row:
      return sizeof(Int8RowBlock);
    default:
      return sizeof(FloatBlock);
  }
}

// x [rows, cols] float32, optionally RMS-normalised row by row, to blocks:
//   squares = 16 interleaved chains of fma(x, x, .), added as a tree (kernels/lanes.h)
//   y       = (x * (1 / sqrt(squares / cols + epsilon))) * norm_weight
struct QuantizeArgs {
  const float* x;
  size_t x_stride;  // floats
  int cols;
  const float* norm_weight = nullptr;  // [cols]; nullptr: no norm
  float epsilon = 0;
  Activations to;
  float threshold = std::numeric_limits<float>::infinity();  // kInt8Row: the least magnitude of outliers
  float outlier_ratio = kLeastOutlierRatio;                  // kInt8x2: the same, relative to the row's mean magnitude
  bool to_e4m3 = false;  // kBf16: rows are rounded to E4M3 first, as base/float8.h says
  std::byte* out;        // row 0, whichever rows are quantized; 64-byte aligned
  size_t out_stride;     // bytes: blocks * activation_block_bytes(to)
};

// y [rows, W.rows] = value, or y_old + value if `accumulate`:
//
//   gate  = x W^T + bias
//   value = scale * f(gate)                       f: `nonlinearity`
//   value = scale * (f(gate) * (x U^T + up_bias)) if `up` (U) is set: same shape and activations as W
//
// Without bias nothing is added; with scale 1 nothing is multiplied.
//
// Each output of x W^T is a sum over blocks (kInt8, kBf16: halves of blocks, where 16 inputs share a scale) in the order
// of K:
//
//   kInt8  acc = fma(float(dot), scale_w * scale_x, acc)                  low = fma(minimum, sum_x, low)
//   kBf16  acc = fma(even + odd, scale_w, acc)                            low = fma(minimum, sum_x, low)
//   kF32   acc = acc + (even + odd)
//
// and finally acc + low (if the format has minima). A code is less its zero point; dot, the sum of code * q_x, is exact.
// With kInt8, the two halves of a block are added before they are scaled, and the integers of two-level scales
// (has_two_levels()) before the float16 above them, `super`:
//
//   16 inputs a scale  sum = fma(float(dot of 16 .. 31), scale_w of these, float(dot of 0 .. 15) * scale_w of these)
//                      acc = fma(sum, scale_x, acc)
//   two levels         per 256 inputs, with the integers in place of scale_w:  part = fma(sum, scale_x, part), from 0
//                      acc = fma(part, super, acc)                  likewise low, with half_sums and minima
//
// The sum of integers is exact for codes of up to 6 bits, so kernels may take it in any way.
//
// kInt8x2 continues the sum of the blocks, for each outlier in order:
//
//   x W^T = fma(x, weight, .)                weight: scale_w * code, + minimum if there are minima, each rounded
//
// `even` and `odd` start at 0 in each half or block and are chains over its even and odd inputs:
//
//   kBf16  fma(x, code, .), with the entries of float tables rounded to bf16; unquantized: acc = acc + (even + odd)
//   kF32   fma(x, weight, .)
//
// kBf16 treats subnormal numbers as zero throughout (kernels/denormals.h).
//
// kInt8Row is for codes kI8 with one scale for each output and no minima (takes_int8_rows()). Sums are exact, of at most
// 2^17 inputs:
//
//   x W^T = float(sum of code * q_x) * (scale_w * scale_x), then for each outlier in order:  fma(x, scale_w * code, .)
//
struct LinearArgs {
  const PackedMatrix* weights;
  const PackedMatrix* up = nullptr;
  Activations activations;  // type of x: activations_for(mode, weights->format), or kInt8Row
  const std::byte* x;       // row 0
  size_t x_stride;          // bytes
  float* y;
  size_t y_stride;              // floats
  const float* bias = nullptr;  // [weights->rows]
  const float* up_bias = nullptr;
  Nonlinearity nonlinearity = Nonlinearity::kNone;  // kClampedSwiglu needs `up`
  float alpha = 0, limit = 0;                       // only for kClampedSwiglu
  float scale = 1;
  bool accumulate = false;
  const LinearLoop* loop = nullptr;  // one of linear_loops(); nullptr: its first
};

// The KV cache of one layer, in pages of 16 tokens. Page p of KV head h begins at
//   data + p * page_stride + h * head_stride
// with its keys; its values follow, then its scales. Dimensions d are padded to a multiple of 16, those of keys with
// zeros. Layouts:
//
//   f32, f16   keys [d][16 tokens]         values [16 tokens][d]
//   bf16       keys [d/2][16 tokens][2]    values [d/16][8 token pairs][16 d][2]
//   int8       keys [d][16 tokens]         values [d/16][16 tokens][16 d]    scales [keys, values][16 tokens] float32
//   fp8        as int8                                                       scales [keys, values][16 tokens] bf16
//   int4       keys [d/8][16 tokens][8]    values [d/16][2][16 d][8 tokens]  scales [keys, values][16 tokens] bf16
//
// The bf16 layouts are what a matrix tile or a pair of FMAs reads; values are rounded by attention_bf16(). Slots after
// a sequence's last token may hold anything: they never affect a result.
//
// With codes, the key of a token and head is its codes' numbers times a scale, and so is its value, with a scale of its
// own. `largest` is the largest magnitude of the key or value.
//
// Int8: a code is its number.
//
//   largest = 0 if it is below kSmallestRounded, NaN if a number is NaN
//   scale   = largest / 127
//   code    = x * (127 / largest), rounded to the nearest integer, ties to even
//             if the scale is 0, infinite or NaN:  127 for infinity, -127 for -infinity, else 0
//
// Fp8: a code is E4M3 of OCP's "8-bit floating point specification" (OFP8), and its number that float divided by 256.
// (These are the float16 with the same sign, exponent bits and mantissa bits.)
//
//   scale   = largest / 1.75, rounded to bf16
//   code    = x * (256 / scale), rounded to the nearest E4M3, ties to even
//   If largest is below kSmallestFp8 or a number is not finite, all codes are 0, and the scale is 0 or NaN.
//
// Int4: the key and the value are rotated first: rotated_block() neighbouring numbers at a time are multiplied by a
// Hadamard matrix (rotate_head()), which spreads a few large numbers over all (QuaRot: arXiv 2404.00456). Attention
// rotates queries and the result, so it is as without a rotation. The number of a code is int4_number(code). Eight codes
// share 32 bits; code i begins at bit int4_shift(i).
//
// Keys have a large part in common, which would take most of the codes' range. So x is a key less the mean of the keys
// before it in its page, as they are stored (predictive coding):
//
//   key t   = mean of keys 0 .. t - 1 + scale * number        key 0 = scale * number
//   mean    = sum over i < t of kMeanShares[i] * scale i * number i, in order of i:  fma(share * scale, number, .) from 0
//
// So a key depends on tokens before it alone, and reading it needs no other page. Attention takes its product as the sum
// of the products with these differences (AttentionArgs).
//
//   scale   = kInt4Shares[i] * (largest / 127), rounded to bf16: of the shares, the one with the least sum of squared
//             errors, the first if several have that. The sum: in 16 interleaved chains of fma(error, error, .), added
//             as a tree, with error = fma(-scale, number, x)
//   code    = the nearest number to x * (1 / scale), the smaller magnitude if two are
//   If largest is below kSmallestInt4 or a number is not finite, all codes are 8, and the scale is 0 or NaN. After a NaN,
//   all keys of the page are NaN.
constexpr int padded_head(int dim) { return (dim + 15) / 16 * 16; }
// Scales are then large enough for AttentionArgs: at least 2^-46 and 2^-63.
inline constexpr float kSmallestFp8 = 0x1p-45f, kSmallestInt4 = 0x1p-55f;
// Elements 0 and 2 lie in two halves of 16 bits at the same place, and so do 1 and 3, 4 and 6, 5 and 7: one shift and one
// look-up for each half give the pairs that VDPBF16PS multiplies.
constexpr int int4_shift(int i) { return (i & 2 ? 0 : 16) + (i & 1 ? 4 : 0) + (i & 4 ? 8 : 0); }
// The levels of the quantizer with 16 levels and the least mean squared error for normally distributed numbers, as rotated
// ones nearly are (Max, "Quantizing for minimum distortion", 1960, table I), in 127ths of the largest.
constexpr int kInt4Levels[] = {6, 18, 31, 44, 58, 75, 96, 127};
constexpr int int4_number(int code) { return code < 8 ? -kInt4Levels[7 - code] : kInt4Levels[code - 8]; }
// Of all codes. (Tables that kernels load are not inline: each instruction set has its own copy.)
alignas(64) constexpr auto kInt4Numbers = [] {
  std::array<float, 16> numbers{};
  for (int code = 0; code < 16; ++code) numbers[static_cast<size_t>(code)] = static_cast<float>(int4_number(code));
  return numbers;
}();
constexpr float kInt4Shares[] = {1.08f, 1.05f, 1.02f, 0.99f, 0.96f, 0.93f, 0.9f,
                                 0.87f, 0.84f, 0.81f, 0.78f, 0.75f, 0.72f};
// If x[t] is a key less the mean of those before it, the mean of keys 0 .. t is that of 0 .. t - 1 + x[t] / (t + 1).
constexpr float kMeanShares[kPageTokens] = {1.0f,      1.0f / 2,  1.0f / 3,  1.0f / 4,  1.0f / 5,  1.0f / 6,
                                            1.0f / 7,  1.0f / 8,  1.0f / 9,  1.0f / 10, 1.0f / 11, 1.0f / 12,
                                            1.0f / 13, 1.0f / 14, 1.0f / 15, 1.0f / 16};
struct KvLayer {
  std::byte* data;
  size_t page_stride, head_stride;  // bytes
  KvType type;
  int kv_heads, key_dim, value_dim;

  int padded_key() const { return padded_head(key_dim); }
  int padded_value() const { return padded_head(value_dim); }
  // Bytes from the beginning of a head's page.
  size_t values_offset() const { return kPageTokens * kv_bytes(type, static_cast<size_t>(padded_key())); }
  size_t scales_offset() const {
    return values_offset() + kPageTokens * kv_bytes(type, static_cast<size_t>(padded_value()));
  }
};
constexpr size_t kv_head_bytes(KvType type, int key_dim, int value_dim) {
  const auto numbers = static_cast<size_t>(padded_head(key_dim) + padded_head(value_dim));
  return kPageTokens * (kv_bytes(type, numbers) + 2 * kv_scale_bytes(type));
}

// Rotates elements [offset, offset + rope_dim) of each head of one row in place, after multiplying the whole head by
// `scale` (unless it is 1).
struct RotateArgs {
  float* x;  // head 0
  int heads, head_dim;
  size_t head_stride;  // floats
  int offset = 0;
  const float* cos_sin;  // [rope_dim / 2][2], for the row's position
  int rope_dim;
  RopeKind kind;
  float scale = 1;
};

// Stores the key and value of one row in the cache. With int4, tokens share bytes and keys follow from those before them:
// the tokens of a page must be stored in order, by one thread.
struct StoreKvArgs {
  const float* k;             // [kv_heads, key_dim]
  const float* v;             // [kv_heads, value_dim]
  size_t k_stride, v_stride;  // floats from head to head
  const KvLayer* kv;
  int page, slot;  // where the row's token is stored
};

// Attention of consecutive rows of one sequence, for query heads that share a KV head, by online softmax.
//
// Definition. A query at position p with window w (0: none) sees tokens max(0, p - w + 1) .. p; without `causal`, it
// sees all tokens of the sequence, or with a window those of them at a distance below w. They are cut at absolute
// positions into splits of kAttentionSplit, those into blocks of kAttentionBlock. A sum of products is taken in chunks
// of kAttentionChunk elements:
//
//   even, odd = chains of fma(x, y, .) from 0, over the chunk's even and odd elements
//   acc       = acc + (even + odd)         what a bf16 matrix unit computes in one instruction
//
// For each block of a split, in order:
//
//   score   = scale * (sum over the chunks of the dimensions, from 0)
//             codes:            scale * (sum * the key's scale)
//             with a soft cap:  cap * tanh(score / cap)
//             with a slope:     fma(slope, -|token - p|, score)      (ALiBi)
//   m'      = max(m, the block's scores)
//             if it grew: all sums so far are multiplied by exp(m - m'), and values below kSmallestSum become 0
//   weight  = exp(score - m'); weight_lane() for a bf16 cache, unrounded_weight_lane() for codes
//   sums    : 16 lanes (token % 16) of weights, added as a tree at the end of the split
//   values  = acc over the two chunks of the block's weights, continuing from the previous block;
//             codes: weight * the value's scale, rounded to bf16, takes the place of the weight
//             tokens that the query does not see have weight 0, also after multiplication by a scale
//
// With a bf16 cache, queries are rounded by attention_bf16() like keys and values, and weights are rounded to bf16
// before they are summed, so that they normalise exactly. With an f32 or f16 cache both stay float32.
//
// With codes, queries are rounded as with bf16 and multiply the codes' numbers, which are exact in bf16. So a bf16 unit
// computes the sums, and a scale costs one multiplication per token. Weights are rounded once, after multiplication by the value's scale, but they
// normalise unrounded: each rounding is unbiased and at most 2^-9 of its weight, less than the rounding of the codes.
// Codes are finite, so a token that a query does not see leaves no trace, even if its scales are NaN. (With int4, but for
// later keys of its page.) With int4, queries are rotated before they are rounded, and the quotient of values and sum is
// rotated last. The product of a query and key t of a page is that with the mean of the keys before it, which is a sum of
// the products with their differences, and that with its own: with s[t] = sum * the key's scale and s = 0 after the last
// token, for all t of a page,
//
//   p[t] = kMeanShares[t] * s[t]        for d = 1, 2, 4, 8, all t at once:  p[t] = p[t] + (t < d ? 0 : p[t - d])
//   s[t] + (t < 1 ? 0 : p[t - 1])       takes the place of sum * the key's scale
//
// Splits are merged in order: merge(). A sink is merged after them, as a split with maximum `sink`, sum 1 and values 0.
// So the result does not depend on which rows share a tile or which thread computes which split.
//
// No sum is ever -0 or denormal, so chunks whose weights are all zero may be skipped. (kSmallestSum: 2^-100 has 23 bits
// above 2^-123. A weight is 0 or at least 2^-56 and a scale of integers 0 or at least 2^-63, so their product, rounded to
// bf16, is a multiple of 2^-126. Fp8's numbers are multiples of 2^-17, its scales 0 or at least 2^-46.)
inline constexpr int kAttentionChunk = 32;
inline constexpr float kSmallestSum = 0x1p-100f;
inline constexpr int kAttentionBlock = 64;
inline constexpr int kAttentionSplit = 512;
inline constexpr int kMaxTileQueries = 16;  // rows * heads of a tile
struct AttentionArgs {
  const float* q;  // [rows, heads, key_dim]
  size_t q_stride;
  float* out;  // [rows, heads, value_dim]
  size_t out_stride;
  const KvLayer* kv;
  int heads;  // in all: kv->kv_heads * group
  float scale;
  int window;                     // tokens; 0: none
  bool causal = true;             // false: queries see later tokens, too
  float soft_cap = 0;             // 0: none
  const float* slopes = nullptr;  // [heads]
  const float* sinks = nullptr;   // [heads]
};
struct AttentionTile {
  const int32_t* pages;        // the sequence's page table
  int row, rows;               // rows of the batch, consecutive positions
  int position;                // position of the first row
  int end;                     // tokens of the sequence: only needed if not causal
  int head, heads;             // query heads [head, head + heads), all of one KV head
  int split_begin, split_end;  // splits to compute
  // nullptr: merges the splits and writes the result to out. Otherwise (split_end == split_begin + 1) writes
  // [max, sum, padded_value() values] for each row and query head to `partial`.
  float* partial = nullptr;
  const AttentionTile* next = nullptr;  // probably this thread's next tile: its first pages are prefetched
};

// Merges partial results of the same queries in order and writes them to out.
struct AttentionMerge {
  int row, rows, head, heads;
  const float* partials;  // the partials of split 0
  size_t split_stride;    // floats from one split's partials to the next
  int splits;
};

struct KernelSet {
  std::string_view name;  // reference, avx2, avx2vnni, avx512, avx512bf16, amx
  void (*quantize)(const QuantizeArgs&, int row_begin, int row_end);
  // row_begin: a multiple of kRowGroup.
  void (*linear)(const LinearArgs&, int panel_begin, int panel_end, int row_begin, int row_end);
  // Writes the loops of linear() for this many rows to `loops` and returns their number. The first one is used unless
  // another is measured to be faster.
  size_t (*linear_loops)(const PackedMatrix&, Activations, int rows, std::span<LinearLoop, kMostLinearLoops> loops);
  void (*normalize)(const NormArgs&, int row_begin, int row_end);
  void (*multiply_gate)(const GateArgs&, int row_begin, int row_end);
  void (*softplus)(const SoftplusArgs&, int row_begin, int row_end);
  void (*soft_cap)(float* x, int count, float cap);  // x = cap * tanh(x / cap)
  void (*softmax)(float* x, int count);              // one row, in place; all NaN if one number is
  void (*sigmoid)(float* x, int count);              // 1 / (1 + exp(-x))
  void (*rotate)(const RotateArgs&);
  // Starts to fetch the lines that store_kv() will write: in decoding, they were last touched a step ago and are no
  // longer in a cache. Call it before rotate().
  void (*prefetch_kv)(const StoreKvArgs&);
  void (*store_kv)(const StoreKvArgs&);
  void (*attention)(const AttentionArgs&, const AttentionTile&);
  void (*merge)(const AttentionArgs&, const AttentionMerge&);
  void (*short_conv)(const ShortConvArgs&, int channel_begin, int channel_end);
  void (*gated_delta)(const GatedDeltaArgs&);
  void (*mamba2)(const Mamba2Args&);
  // Multiplies on registers alone, as fast as this set can, `rounds` times; returns the number of multiply-adds: the
  // upper bound that benchmarks compare with. unit: a multiply_unit().
  double (*peak)(Activations unit, int64_t rounds);
  // Panels that linear() processes together when there are many rows: ranges of whole such groups are fastest.
  int linear_panels = 1;
  // Rows that one call of linear() should get when there are many, a multiple of kRowGroup: as many as keep their
  // inputs in a core's L2 while panels stream past (64 rows of 2,048 int8 inputs are 196 KiB).
  int linear_rows = 64;
  // Rows of kBf16 inputs that share cache lines: one thread should write them all.
  int shared_input_rows = 1;
  // --activations auto: bf16 is closest to the model, and the default of sets that multiply it as fast as int8.
  Activations default_activations = Activations::kInt8x2;
};

const KernelSet& reference_kernels();
// nullptr: not built for this architecture. Call each only where the CPU has the instructions of its set: the function
// itself may be compiled with them.
const KernelSet* avx2_kernels();
const KernelSet* avx2vnni_kernels();
const KernelSet* avx512_kernels();
const KernelSet* avx512bf16_kernels();
const KernelSet* amx_kernels();  // call permit_tiles() (base/cpu.h) first

// The set called `name`; for "" and "auto" the fastest that this machine can run. Throws Error (kInvalid) that lists
// the sets this machine can run.
const KernelSet& choose_kernels(std::string_view name);
// All sets this machine can run, slowest first.
std::span<const KernelSet* const> available_kernels();

}  // namespace quire
