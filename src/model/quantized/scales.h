// The scales of a quantized matrix: of the whole tensor, its rows, groups of inputs or blocks.
#pragma once

#include <bit>
#include <cmath>
#include <initializer_list>
#include <span>

#include "model/quantized/module_tensors.h"

namespace quire {

inline constexpr std::initializer_list<TensorType> kFloatTypes = {TensorType::F32, TensorType::F16, TensorType::BF16};

// Element `index` of a tensor of kFloatTypes, exactly; of F8_E8M0 or U8, which has the same bytes: a power of two.
float read_float(const TensorView& tensor, size_t index);

// The group of a scale over whole rows.
constexpr int whole_row(int cols) { return (cols + 31) / 32 * 32; }

enum class Sign : uint8_t { kAny, kNotNegative };

// Throws if a scale is no number that the method can make.
inline void check_scale(float scale, Sign sign, const TensorLabel& label, int row) {
  if (!std::isfinite(scale) || (sign == Sign::kNotNegative && scale < 0)) throw label.damaged("scale", scale, row);
}

class ScaleGrid {
 public:
  // Checks the tensor's type and shape.
  ScaleGrid(const ModuleTensors& module, std::string_view ending, const CodedScheme& scheme, Sign sign);

  int group() const { return group_; }     // PanelFormat::group
  size_t width() const { return width_; }  // scales in a row
  size_t first_of(int row) const { return static_cast<size_t>(row / row_block_) * width_; }

  void read(int row, std::span<uint32_t> scales) const {
    for (size_t g = 0; g < width_; ++g) {
      const float scale = read_float(*tensor_, first_of(row) + g);
      check_scale(scale, sign_, label_, row);
      scales[g] = std::bit_cast<uint32_t>(scale);
    }
  }

 private:
  const TensorView* tensor_;
  TensorLabel label_;
  Sign sign_;
  int group_ = 0, row_block_ = 1;
  size_t width_ = 1;
};

}  // namespace quire
