// Linear layers over a team: rounding of inputs, and products with packed weights.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/packed.h"
#include "ops/compute.h"

namespace quire {

struct Rows;
struct NormView;

struct Linear {
  PackedMatrix weight;
  std::vector<float> bias;  // [weight.rows], or empty

  const float* bias_or_null() const { return bias.empty() ? nullptr : bias.data(); }
};

// Rows of inputs as kernels read them, in each form that the weights need.
struct Inputs {
  std::byte *int8, *floats;
  size_t int8_stride, float_stride;  // bytes from row to row

  std::byte* data(Activations a) const { return a == Activations::kInt8 ? int8 : floats; }
  size_t stride(Activations a) const { return a == Activations::kInt8 ? int8_stride : float_stride; }
};

// Memory for the inputs of one linear at a time.
class InputMemory {
 public:
  struct Need {  // the inputs of one linear
    int rows, cols;
  };
  InputMemory() = default;
  // memory: bytes(needs), 64-byte aligned. Any one of the needs fits.
  InputMemory(std::byte* memory, std::span<const Need> needs);
  static size_t bytes(std::span<const Need> needs);

  // The normalised rows of x, rounded as the matrices need them. They are valid until the next call.
  // `as`: the form for all matrices, whatever the model's.
  Inputs prepare(const Compute& compute, const Rows& x, const NormView& norm, int rows,
                 std::span<const PackedMatrix* const> matrices, std::optional<Activations> as = {}) const;
  Inputs prepare(const Compute& compute, const Rows& x, const NormView& norm, int rows,
                 std::initializer_list<const PackedMatrix*> matrices, std::optional<Activations> as = {}) const {
    return prepare(compute, x, norm, rows, std::span(matrices.begin(), matrices.size()), as);
  }
  // Row i is row sources[i] of x (`gathered`: row i), or nothing if sources[i] is negative.
  Inputs prepare_gathered(const Compute& compute, const Rows& x, std::span<const int32_t> sources, bool gathered,
                          const PackedMatrix& matrix) const;
  // Inputs of one linear per head: columns [h * stride, h * stride + cols) of x for head h, whose inputs are at(h).
  struct HeadInputs {
    Inputs first;
    int padded_rows;
    Inputs at(int head) const;
  };
  HeadInputs prepare_heads(const Compute& compute, const Rows& x, int heads, int stride, int cols, int rows,
                           const PackedMatrix& matrix) const;
  // Rows that inputs of this many heads take.
  static int head_rows(int heads, int rows) { return heads * static_cast<int>(padded_rows(rows)); }

 private:
  Inputs of_cols(int cols) const;  // of a linear with so many inputs

  std::byte *int8_ = nullptr, *floats_ = nullptr;
  float* scratch_ = nullptr;  // [rows] of the widest: results of norms that quantizing does not fuse
};

// y = x W^T + b, to be completed by the caller: gates, scales, accumulation.
LinearArgs linear_args(const Compute& compute, const Inputs& x, const Linear& w, const Rows& y,
                       std::optional<Activations> as = {});

// Independent linears over the same rows, as one loop.
void linears(const Compute& compute, std::span<const LinearArgs> list, int rows);

// A linear over some of the rows: those of one expert. row_begin: a multiple of kRowGroup.
struct LinearPart {
  LinearArgs args;
  int row_begin, row_end;
};
// Independent linears over rows of their own, as one loop. tiles: memory that is reused.
struct LinearTile {
  int part, panel_begin, panel_end, row_begin, row_end;
};
void grouped_linears(const Compute& compute, std::span<const LinearPart> parts, std::vector<LinearTile>& tiles);

void quantize_rows(const Compute& compute, const QuantizeArgs& args, int rows);

}  // namespace quire
