// Linear layers: packed weights, the inputs that they read, and what becomes of their products.
#pragma once

#include <array>
#include <cstddef>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kernels/packed.h"
#include "kernels/types.h"
#include "ops/backend_memory.h"
#include "ops/input_transform.h"
#include "ops/rows.h"

namespace quire {

struct Linear {
  PackedMatrix weight;                              // its data lies in the backend's memory
  Vector bias;                                      // [weight.rows], or empty
  std::shared_ptr<const InputTransform> transform;  // null: none. Linears of equal transforms share it
  // The model was made for int8 inputs with one scale a row (W8A8): takes_int8_rows(weight).
  bool int8_rows = false;
  float threshold = std::numeric_limits<float>::infinity();  // inputs beyond it are outliers of such rows
};

// The form that a linear's inputs are rounded to.
constexpr Activations input_form(Activations mode, const Linear& w) {
  return has_int8_blocks(mode) && w.int8_rows ? Activations::kInt8Row : activations_for(mode, w.weight.format);
}

// What a model's linears need beyond int8 blocks and floats of the inputs as they are.
struct InputForms {
  bool int8_rows = false, transforms = false;
  bool fp8 = false;  // some weights may be FP8 (takes_fp8())

  bool operator==(const InputForms&) const = default;
};

// Linears that Operations::prepare() gets may differ in so many transforms: those of queries, keys, values and a gate.
inline constexpr int kMostTransforms = 4;

// Rows of inputs as linears read them: in each form, and with each transform, that the linears need.
class Inputs {
 public:
  struct Entry {
    Activations form;
    const InputTransform* transform;  // nullptr: none
    std::byte* data;
    size_t stride;  // bytes from row to row
  };
  // A single entry serves all linears: with those of experts, each row has its own linear's transform.
  const Entry& of(Activations form, const Linear& w) const;
  // Nothing if it is there already.
  const Entry* add(const Entry& entry);
  Inputs from_row(int row) const;

 private:
  static constexpr size_t kMost = 8;
  std::array<Entry, kMost> entries_{};
  size_t count_ = 0;
};

// y = f(x W^T + b), or with `up` a gated product: y = f(x W^T + b) * (x U^T + c). The result is multiplied by `scale`, and
// replaces y or is added to it.
struct Projection {
  const Linear* w;
  Rows y;
  const Linear* up = nullptr;
  Nonlinearity f = Nonlinearity::kNone;  // kClampedSwiglu needs `up`
  float alpha = 0, limit = 0;            // for kClampedSwiglu
  float scale = 1;
  bool accumulate = false;             // y += instead of y =
  std::optional<Activations> as = {};  // the form of the inputs, as for prepare()
  // > 0: y has this many KV heads, or the queries of each. Ranks that share the heads of a cache (LayerCache) need no others
  // than their own; those columns of y are then undefined.
  int kv_heads = 0;
};
inline constexpr size_t kMostTogether = 16;  // in a call

// Matrices that a model multiplies the same inputs with, in one call of Operations::project(); with `up` there is one, which gates it.
struct TunedProjection {
  std::vector<const Linear*> matrices;
  const Linear* up = nullptr;
};

// For each head h: columns [h * y_step, .. + outputs) of y = matrices[h] times columns [h * x_step, .. + inputs) of x.
struct HeadProjections {
  std::span<const Linear> matrices;  // all have one shape, form and transform
  Rows x;
  int x_step;
  Rows y;
  int y_step;
};

}  // namespace quire
