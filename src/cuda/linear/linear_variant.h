// Kernels that can multiply the same linear. All give the same bits; which of them is the fastest depends on the GPU, so that it
// can be measured (cuda/linear/measure_variants.h).
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "cuda/device.h"
#include "cuda/kernels/weights.h"
#include "kernels/packed.h"
#include "kernels/types.h"

namespace quire::cuda {

enum class LinearKernel : uint8_t {
  kUsual,       // what estimates, and measurements on one GPU, say (docs/cuda.md)
  kFewRows,     // LinearOfFewRows: bf16, up to 8 rows that fit into shared memory
  kRows,        // LinearOfRows, or that of int8
  kTiles,       // LinearOfTiles, for more than 16 rows, or that of int8
  kWarpgroups,  // LinearOfManyRows and the like: what takes_many_rows() accepts
};
struct LinearVariant {
  LinearKernel kernel = LinearKernel::kUsual;
  int panels = 0;  // of a thread block of kFewRows or kRows, up to 8 rows: 1 or 2; gated matrices take 2. 0: as usual
  bool prepares = false;  // kFewRows: it prepares its inputs, where they are late (cuda/linear/inputs.h)
  int columns = 0;        // rows of inputs of a thread block of LinearOfBf16Rows or LinearOfInt8Rows: 64, 128 or 256
  int cluster = 0;        // > 0: LinearInClusters with 2 or 4 blocks, of 128 or 256 columns
  bool apart = false;     // kWarpgroups: ranges have blocks of their own, if there is memory for their sums
  int ahead = 0;          // LinearOfBf16Rows, LinearInClusters: LinearWork::ahead

  bool operator==(const LinearVariant&) const = default;
};

// Linears that take the same kernel.
struct LaunchKind {
  Codes codes;
  ScaleForm form;
  bool halves, minima, gated;
  Activations inputs;
  int panels, blocks;  // of all matrices together; of inputs
  int rows;            // rounded up to a power of two

  auto operator<=>(const LaunchKind&) const = default;  // NOLINT(modernize-use-nullptr): clang-tidy 14 misreads <=>
};

// Those that can replace the usual one.
std::vector<LinearVariant> variants_of(const DeviceFacts& facts, const LaunchKind& kind);
std::string name(const LaunchKind& kind);        // "u4 half, bf16 inputs, 384 panels, 128 blocks, 8 rows"
std::string name(const LinearVariant& variant);  // "few rows, 2 panels"

// The variants that were chosen. Thread-safe.
class VariantTable {
 public:
  LinearVariant find(const LaunchKind& kind) const;  // the usual one if there is no other
  void choose(const LaunchKind& kind, const LinearVariant& variant);
  // Kinds that find() was asked for since the last call.
  std::vector<LaunchKind> take_asked();
  void note_asked() { notes_ = true; }

 private:
  mutable std::mutex mutex_;
  std::map<LaunchKind, LinearVariant> chosen_;
  bool notes_ = false;
  mutable std::vector<LaunchKind> asked_;
};

}  // namespace quire::cuda
