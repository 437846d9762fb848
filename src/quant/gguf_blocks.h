// The block types of GGUF files as codes, scales and minima. The only decoder of blocks: dequantizing and packing both
// start from its parts.
#pragma once

#include <cstddef>

#include "base/tensor_type.h"
#include "quant/panel_format.h"

namespace quire {

// Whether `type` is one of blocks that this file reads, or F32, F16 or BF16.
bool has_panel_format(TensorType type);

// Requires has_panel_format(type). The vectors of the IQ1, IQ2 and IQ3 types are expanded to codes of a table.
const PanelFormat& panel_format(TensorType type);

// What decode_row() takes for blocks of this type: below 1 where tables hold multiples of the numbers (NVFP4, IQ1 to
// IQ3).
float panel_factor(TensorType type);

// Takes a row of blocks apart. type: any with a format but F32, F16 and BF16. row: out.codes.size() elements in whole
// blocks, of any alignment and with any bytes. The bits of scales and minima are zero-extended.
void read_row(TensorType type, const std::byte* row, const CodedRow& out);

}  // namespace quire
