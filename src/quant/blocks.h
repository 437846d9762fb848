// From the blocks of a file to float32.
#pragma once

#include <cstddef>
#include <span>

#include "base/tensor_type.h"

namespace quire {

// Gives ggml's to_float bit for bit: float32, multiplied before added, nothing fused. blocks: whole blocks, any
// alignment; out: exactly their elements. The type must be loadable (info(type).loadable), else an Error
// (kUnsupported).
void dequantize(TensorType type, std::span<const std::byte> blocks, std::span<float> out);

}  // namespace quire
