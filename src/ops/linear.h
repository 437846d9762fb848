// Linear layers over a team: rounding of inputs, and products with packed weights.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kernels/packed.h"
#include "ops/compute.h"
#include "ops/input_transform.h"
#include "ops/rows.h"

namespace quire {

struct QuantizeArgs;  // kernels/kernels.h
struct LinearArgs;

struct Linear {
  PackedMatrix weight;
  std::vector<float> bias;                          // [weight.rows], or empty
  std::shared_ptr<const InputTransform> transform;  // null: none. Linears of equal transforms share it
  // The model was made for int8 inputs with one scale a row (W8A8): takes_int8_rows(weight).
  bool int8_rows = false;
  float threshold = std::numeric_limits<float>::infinity();  // of outliers of such rows

  const float* bias_or_null() const { return bias.empty() ? nullptr : bias.data(); }
};

// The form that a linear's inputs are rounded to.
constexpr Activations input_form(Activations mode, const Linear& w) {
  return has_int8_blocks(mode) && w.int8_rows ? Activations::kInt8Row : activations_for(mode, w.weight.format);
}

// What a model's linears need beyond int8 blocks and floats of the inputs as they are.
struct InputForms {
  bool int8_rows = false, transforms = false;

  bool operator==(const InputForms&) const = default;
};

// Rows of inputs as kernels read them: in each form, and with each transform, that the linears need.
class Inputs {
 public:
  struct Entry {
    Activations form;
    const InputTransform* transform;  // nullptr: none
    std::byte* data;
    size_t stride;  // bytes from row to row
  };
  // A single entry serves all linears: with those of prepare_gathered(), each row has its own linear's transform.
  const Entry& of(Activations form, const Linear& w) const;
  // Nothing if it is there already.
  const Entry* add(const Entry& entry);
  Inputs from_row(int row) const;

 private:
  static constexpr size_t kMost = 8;
  std::array<Entry, kMost> entries_{};
  size_t count_ = 0;
};

// Memory for the inputs of some linears at a time.
class InputMemory {
 public:
  struct Need {  // the inputs of one linear
    int rows, cols;
  };
  InputMemory() = default;
  // memory: bytes(needs, forms), 64-byte aligned. Any one of the needs fits.
  InputMemory(std::byte* memory, std::span<const Need> needs, const InputForms& forms);
  static size_t bytes(std::span<const Need> needs, const InputForms& forms);

  // The normalised rows of x, rounded as the linears need them: at most kMostTransforms transforms. They are valid
  // until the next call. `as`: the form for all linears, whatever the model's.
  Inputs prepare(const Compute& compute, const Rows& x, const NormView& norm, int rows,
                 std::initializer_list<const Linear*> linears, std::optional<Activations> as = {}) const;
  // Row i is row sources[i] of x (`gathered`: row i), or nothing if sources[i] is negative. It is for the linear that
  // linear_of(i) gives; rows of one kRowGroup have one, and all have one form.
  Inputs prepare_gathered(const Compute& compute, const Rows& x, std::span<const int32_t> sources, bool gathered,
                          const std::function<const Linear&(int row)>& linear_of) const;
  // Inputs of one linear per head: columns [h * stride, h * stride + cols) of x for head h, whose inputs are at(h). All
  // linears have the form and the transform of `any`.
  struct HeadInputs {
    Inputs first;
    int padded_rows;
    Inputs at(int head) const { return first.from_row(head * padded_rows); }
  };
  HeadInputs prepare_heads(const Compute& compute, const Rows& x, int heads, int stride, int cols, int rows,
                           const Linear& any) const;
  // Rows that inputs of this many heads take.
  static int head_rows(int heads, int rows) { return heads * static_cast<int>(padded_rows(rows)); }

  static constexpr int kMostTransforms = 4;  // queries, keys, values and a gate

 private:
  struct Regions {
    size_t int8 = 0, floats = 0, int8_rows = 0, transformed = 0, scratch = 0;  // bytes; `transformed`: of each
  };
  static Regions regions_of(std::span<const Need> needs, const InputForms& forms);
  std::byte* region(Activations form) const;

  std::byte *int8_ = nullptr, *floats_ = nullptr, *int8_rows_ = nullptr, *transformed_ = nullptr;
  float *normed_ = nullptr, *changed_ = nullptr;  // [rows] of the widest
  size_t transformed_bytes_ = 0;
};

// y = f(x W^T + b), or with `up` a gated product: y = f(x W^T + b) * (x U^T + c). Then y or what is added to it is
// multiplied by `scale`.
struct Projection {
  const Linear* w;
  Rows y;
  const Linear* up = nullptr;
  Nonlinearity f = Nonlinearity::kNone;  // kClampedSwiglu needs `up`
  float alpha = 0, limit = 0;            // of kClampedSwiglu
  float scale = 1;
  bool accumulate = false;             // y += instead of y =
  std::optional<Activations> as = {};  // of the inputs, as for InputMemory::prepare()
};

// Independent projections of the same rows, as one loop: at most kMostTogether.
constexpr size_t kMostTogether = 16;
void project(const Compute& compute, const Inputs& x, std::span<const Projection> list, int rows);
inline void project(const Compute& compute, const Inputs& x, const Projection& one, int rows) {
  project(compute, x, {&one, 1}, rows);
}

// A projection of some of the rows: those of one expert, or of one head. row_begin: a multiple of kRowGroup.
struct ProjectionPart {
  Inputs x;
  Projection projection;
  int row_begin, row_end;
};
// Independent projections of rows of their own, as one loop. tiles: memory that is reused.
struct LinearTile {
  int part, panel_begin, panel_end, row_begin, row_end;
};
void project_parts(const Compute& compute, std::span<const ProjectionPart> parts, std::vector<LinearTile>& tiles);

// What they come down to, for measurements.
void linears(const Compute& compute, std::span<const LinearArgs> list, int rows);
void quantize_rows(const Compute& compute, const QuantizeArgs& args, int rows);

}  // namespace quire
