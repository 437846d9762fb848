// The choices that the contracts of kernels name, for those who make them and call no kernel.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/nonlinearity.h"

namespace quire {

// What the inputs of a linear are rounded to. kF32 multiplies float32 inputs by dequantized weights: the path for
// comparing with other implementations.
//
// kInt8 has a scale for each block of 32 inputs. kInt8x2 splits a row in two: the few large inputs, which would make the
// scales of their blocks coarse, stay float32; all others are rounded as with kInt8.
//
// kInt8Row is for models that were made for it (W8A8, LLM.int8): int8 with one scale for a whole row of inputs.
//
// kFp8 is for FP8 weights: inputs are rounded to E4M3, with a power of two as the scale of a whole row (base/float8.h), and are then exact
// in bf16. On a CPU products are those of kBf16.
enum class Activations : uint8_t { kF32, kBf16, kInt8, kFp8, kInt8Row, kInt8x2 };

constexpr bool has_int8_blocks(Activations a) { return a == Activations::kInt8 || a == Activations::kInt8x2; }
// The type of the products: one of the first kMultiplyUnits. Of kFp8, only GPUs have it.
inline constexpr size_t kMultiplyUnits = 4;
constexpr Activations multiply_unit(Activations a) {
  return has_int8_blocks(a) || a == Activations::kInt8Row ? Activations::kInt8 : a;
}

// The form that the CPU's kernels know: rows of E4M3 are rows of bf16 to them.
constexpr Activations kernel_form(Activations a) { return a == Activations::kFp8 ? Activations::kBf16 : a; }

// Rows of inputs that kernels may lay out together.
inline constexpr int kRowGroup = 16;
constexpr size_t padded_rows(int rows) {  // rows that the buffer for `rows` rows must have room for
  return static_cast<size_t>((rows + kRowGroup - 1) / kRowGroup * kRowGroup);
}

// A set may have several loops for the same work, with the same bits. Which is fastest depends on the machine, so it is
// measured (ops/tuning.h).
struct LinearLoop {
  enum class Kind : uint8_t {
    kStream,  // a few rows at a time; weights are decoded in registers, again for every few rows
    kShared,  // weights are decoded for all rows of a call, or for as many as fit in registers
    kTiles,   // matrix tiles: a panel by 16 rows, or several panels if they need no scales
    kPaired,  // matrix tiles: two panels by 16 or 32 rows
  };
  Kind kind = Kind::kShared;
  uint8_t panels = 1;     // kStream: in flight; kShared: in a step; kPaired: groups whose sums are added at once
  uint16_t ahead = 8192;  // bytes to prefetch of panels that are read once

  bool operator==(const LinearLoop&) const = default;
};
inline constexpr size_t kMostLinearLoops = 16;

// What keys and values are rounded to. The order is part of persisted pages (CacheLayout::identity()).
enum class KvType : uint8_t { kF32, kBf16, kF16, kInt8, kInt4, kFp8 };
// Numbers are codes, with a scale for each token's key and value of a head.
constexpr bool has_codes(KvType type) { return type == KvType::kInt8 || type == KvType::kInt4 || type == KvType::kFp8; }
constexpr size_t kv_bytes(KvType type, size_t numbers) {  // numbers: even; without scales
  switch (type) {
    case KvType::kF32:
      return numbers * 4;
    case KvType::kInt8:
    case KvType::kFp8:
      return numbers;
    case KvType::kInt4:
      return numbers / 2;
    default:
      return numbers * 2;
  }
}
constexpr size_t kv_scale_bytes(KvType type) { return type == KvType::kInt8 ? 4 : has_codes(type) ? 2 : 0; }
// Heads are rotated before they are rounded (kernels/kernels.h).
constexpr bool rotates_heads(KvType type) { return type == KvType::kInt4; }
// Attention multiplies bf16 numbers: it rounds queries and weights to bf16. All codes are exact in bf16.
constexpr bool multiplies_bf16(KvType type) { return type == KvType::kBf16 || has_codes(type); }

inline constexpr int kPageTokens = 16;  // in a page of the cache

enum class RopeKind : uint8_t {
  kNone,
  kHalves,      // rotates element i with i + dim/2 (Hugging Face)
  kNeighbours,  // rotates 2i with 2i + 1 (GGUF files of the Llama family)
};

enum class NormKind : uint8_t {
  kNone,   // x
  kRms,    // x / sqrt(mean of x^2 + epsilon)
  kLayer,  // (x - mean) / sqrt(mean of (x - mean)^2 + epsilon)
  kL2,     // x / sqrt(sum of x^2 + epsilon)
};

// The largest sizes that kernels have room for.
inline constexpr int kMaxHeadDim = 576;  // DeepSeek's latent keys
inline constexpr int kMaxConvWidth = 8;
inline constexpr int kMaxKeyDim = 256;

}  // namespace quire
