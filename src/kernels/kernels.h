// The contracts of the operations on tiles, and the table of them that each instruction set fills.
//
// Every function here computes rows or panels that depend on nothing but their own inputs: the same bits whatever the
// tile, the thread or the batch, and the same bits in every KernelSet (docs/exactness.md). reference.cc is the
// definition in plain text; the others are tested against it with memcmp. ops.h runs them over a Team.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "kernels/packed.h"

namespace quire {

// What the input of a linear is rounded to. kInt8 and kBf16 round each input once; kF32 computes with dequantized
// weights and float32 inputs: the path that other implementations are compared with.
enum class Activations : uint8_t { kF32, kBf16, kInt8 };

// The definition in force for weights of `type`: unquantized weights have no int8 definition and take bf16 inputs.
constexpr Activations activations_for(Activations mode, TensorType type) {
  return mode == Activations::kInt8 && !is_quantized(type) ? Activations::kBf16 : mode;
}

// What quantize() makes of rows of inputs and linear() reads: for each row an array of blocks of 32, padded with zeros.
// A kernel set may lay kBf16 out in its own way, within the same bytes for each kRowGroup rows (of which the last ones
// may be missing): what one set quantized only the same set reads.
inline constexpr int kRowGroup = 16;
constexpr size_t padded_rows(int rows) {  // that a buffer for `rows` rows holds
  return static_cast<size_t>((rows + kRowGroup - 1) / kRowGroup * kRowGroup);
}
inline constexpr float kSmallestInt8 = 0x1p-121f;  // a block of smaller inputs counts as zeros: 127 / max is finite
struct Int8Block {
  int8_t q[kBlock];      // input = scale * q, in kPairOrder within each eight; |q| <= 127
  float scale;           // max |input| / 127; no number where an input is none
  float sum;             // scale * (sum of q): what a minimum is multiplied with
  int32_t half_sums[2];  // of q over inputs 0..15 and 16..31
};
struct FloatBlock {  // kF32, kBf16 (rounded to bf16, kept in float32)
  float x[kBlock];
  float sum;  // kBf16: (x0 + x2 + ...) + (x1 + x3 + ...), each in order
  float unused[3];
};
constexpr size_t activation_block_bytes(Activations a) {
  return a == Activations::kInt8 ? sizeof(Int8Block) : sizeof(FloatBlock);
}

// x [rows, cols] float32, each row optionally RMS-normalised, to blocks.
// RMS norm: sum of squares in 16 interleaved FMA chains added as a tree (kernels/lanes.h), y = (x * (1 / sqrt(mean +
// epsilon))) * weight.
struct QuantizeArgs {
  const float* x;
  size_t x_stride;  // floats
  int cols;
  const float* norm_weight;  // [cols], or nullptr: no norm
  float epsilon;
  Activations to;
  std::byte* out;     // 64-byte aligned; the matrix's row 0, whatever rows are quantized
  size_t out_stride;  // bytes: blocks * activation_block_bytes(to)
};

// y [rows, W.rows] = x W^T (+ bias), then y_old + y if `accumulate`, or silu(y) * (x U^T) if `up` is set (same shape
// and type of activations as W; neither bias nor accumulate).
//
// For each output, over the blocks (kInt8, kBf16: the groups that share a scale) in order of K:
//   kInt8  acc = fma(float(sum of q_w * q_x), scale_w * scale_x, acc);   low = fma(minimum, sum_x, low)
//   kBf16  acc = fma(even + odd, scale_w, acc);                          low = fma(minimum, sum_x, low)
//          even, odd: chains of fma(x, q_w, .) over the even and odd inputs of the group, from 0; unquantized: scale 1
//          Subnormal numbers count as zero throughout (kernels/denormals.h).
//   kF32   acc = acc + (even + odd), the chains over dequantized weights, a block at a time
// and at the end acc + low (where the type has minima).
struct LinearArgs {
  const PackedMatrix* weights;
  const PackedMatrix* up;
  Activations activations;  // what x holds: activations_for(mode, weights->type)
  const std::byte* x;       // of row 0
  size_t x_stride;          // bytes
  float* y;
  size_t y_stride;  // floats
  const float* bias;
  bool accumulate;
};

enum class KvType : uint8_t { kF32, kBf16, kF16 };
constexpr size_t kv_value_bytes(KvType type) { return type == KvType::kF32 ? 4 : 2; }

// The KV cache of one layer: page p, KV head h begin at data + p * page_stride + h * head_stride bytes, keys first,
// values behind them. A page holds 16 tokens. Head dimensions are padded to a multiple of 16 with zeros.
//   f32, f16: keys [d][16 tokens], values [16 tokens][d]
//   bf16:     keys [d/2][16 tokens][2], values [d/16][8 token pairs][16 d][2]: what a matrix tile or a pair of FMAs
//   reads; rounded as attention_bf16() says
// Slots behind a sequence's last token may hold anything: nothing of them reaches a result.
inline constexpr int kPageTokens = 16;
struct KvLayer {
  std::byte* data;
  size_t page_stride, head_stride;
  KvType type;
  int kv_heads, head_dim;

  int padded_dim() const { return (head_dim + 15) / 16 * 16; }
};
constexpr size_t kv_head_bytes(KvType type, int head_dim) {
  return 2 * kPageTokens * static_cast<size_t>((head_dim + 15) / 16 * 16) * kv_value_bytes(type);
}

enum class RopeKind : uint8_t {
  kNone,
  kHalves,      // element i turns with i + dim/2 (Hugging Face)
  kNeighbours,  // 2i with 2i + 1 (GGUF files of the Llama family)
};

// Turns the query and key heads of one row and stores its key and value in the cache.
struct RopeStoreArgs {
  float* q;        // [heads, head_dim], turned in place
  const float* k;  // [kv_heads, head_dim]
  const float* v;
  int heads;
  const float* cos_sin;  // [rope_dim / 2][2] for the row's position
  int rope_dim;          // the first rope_dim elements of a head turn
  RopeKind kind;
  const KvLayer* kv;
  int page, slot;  // where the row's token lies
};

// Attention of consecutive rows of one sequence for query heads that share a KV head, by online softmax.
//
// Definition, for a query at position p with window w (0: none): tokens max(0, p - w + 1) .. p in blocks of
// kAttentionBlock (at absolute positions), blocks in splits of kAttentionSplit. Products are summed in chunks of
// kAttentionChunk: `even` and `odd` are chains of fma(x, y, .) from 0 over the chunk's even and odd elements, and
//   acc = acc + (even + odd)
// is what a bf16 matrix unit computes in one instruction.
//   score    over the chunks of the dimensions, from 0, times scale
//   maximum  m' = max(m, the block's scores); where it grows, all sums so far are multiplied by exp(m - m'), and values
//            below kSmallestSum become 0
//   weight   exp(score - m'), weight_lane() for a bf16 cache; 16 lanes (token % 16) of sums, added as a tree at the end
//   of the split values   acc over the two chunks of the block's weights, from what is there; tokens that the query
//   does not see
//            weigh 0
// With a bf16 cache queries are rounded by attention_bf16() like the keys and values, and weights are bf16; the sums
// are of rounded weights, so that they normalise exactly. With an f32 or f16 cache both stay float32. Splits are merged
// in order: merge(). So the result does not depend on which rows share a tile, or which thread computes which split. No
// sum is ever -0 or denormal (kSmallestSum: 2^-100 has 23 bits above 2^-123), so chunks of nothing but zero weights may
// be left out.
inline constexpr int kAttentionChunk = 32;
inline constexpr float kSmallestSum = 0x1p-100f;
inline constexpr int kAttentionBlock = 64;
inline constexpr int kAttentionSplit = 512;
inline constexpr int kMaxTileQueries = 16;  // rows * heads of a tile
inline constexpr int kMaxHeadDim = 512;
struct AttentionArgs {
  const float* q;  // [rows, heads, head_dim]
  size_t q_stride;
  float* out;  // [rows, heads, head_dim]
  size_t out_stride;
  const KvLayer* kv;
  int heads;  // of all, kv->kv_heads * group
  float scale;
  int window;
};
struct AttentionTile {
  const int32_t* pages;        // the sequence's page table
  int row, rows;               // rows of the batch, consecutive positions
  int position;                // of the first
  int head, heads;             // query heads [head, head + heads), all of one KV head
  int split_begin, split_end;  // splits to compute
  // nullptr: merges its splits and writes the result to out. Otherwise writes, for each row and query head,
  // [max, sum, padded_dim values] to `partial` (split_end == split_begin + 1).
  float* partial;
  const AttentionTile* next = nullptr;  // most likely this thread's next: its first pages are fetched early
};

// Merges partial results of the same queries in order and writes them to out.
struct AttentionMerge {
  int row, rows, head, heads;
  const float* partials;  // of split 0
  size_t split_stride;    // floats from one split's partials to the next
  int splits;
};

struct KernelSet {
  std::string_view name;  // reference, avx2, avx2vnni, avx512, avx512bf16, amx
  void (*quantize)(const QuantizeArgs&, int row_begin, int row_end);
  // row_begin: a multiple of kRowGroup.
  void (*linear)(const LinearArgs&, int panel_begin, int panel_end, int row_begin, int row_end);
  void (*rope_store)(const RopeStoreArgs&);
  void (*attention)(const AttentionArgs&, const AttentionTile&);
  void (*merge)(const AttentionArgs&, const AttentionMerge&);
  // Multiplies as fast as this set can on registers alone, `rounds` times; gives the multiply-adds done. The limit that
  // benchmarks are reported beside.
  double (*peak)(Activations activations, int64_t rounds);
  // Panels that linear() takes side by side where there are many rows: ranges of whole such groups cost least.
  int linear_panels = 1;
  // Rows that one call of linear() had best be given where there are many, a multiple of kRowGroup: as many as leave
  // their inputs in a core's L2 while panels stream past (64 of 2,048 int8 inputs are 196 KiB).
  int linear_rows = 64;
};

const KernelSet& reference_kernels();
const KernelSet* avx2_kernels();  // nullptr: not built for this machine's architecture
const KernelSet* avx2vnni_kernels();
const KernelSet* avx512_kernels();
const KernelSet* avx512bf16_kernels();
const KernelSet* amx_kernels();  // permit_tiles() (base/cpu.h) comes first

// The set called `name`, or the best of this machine for "" and "auto". Throws Error (kInvalid) naming the ones there
// are, also when the machine lacks the instructions.
const KernelSet& choose_kernels(std::string_view name);
// All sets this machine can run.
std::span<const KernelSet* const> available_kernels();

}  // namespace quire
