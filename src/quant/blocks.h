// Converts the blocks of a file to float32.
#pragma once

#include <cstddef>
#include <span>

#include "base/tensor_type.h"

namespace quire {

// Same bits as ggml's to_float: float32, a multiplication and then an addition, not fused. blocks: whole blocks of any
// alignment; out: exactly their elements. Throws Error (kUnsupported) if the type has no format
// (has_panel_format() in quant/gguf_blocks.h).
void dequantize(TensorType type, std::span<const std::byte> blocks, std::span<float> out);

}  // namespace quire
