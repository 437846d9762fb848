// The block types of GGUF files as codes, scales and minima. The only decoder and encoder of blocks: dequantizing and
// packing start from its parts, and quantizing ends with them.
#pragma once

#include <cstddef>
#include <span>

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

// Whether parts can be found for weights and put together. Requires has_panel_format(type).
bool has_writer(TensorType type);

// The reverse of read_row(): a row of blocks from its parts, which are some that read_row() or fit_parts() gives. type: one
// with a writer. row: as many blocks as from.codes has.
void write_row(TensorType type, const CodedRow& from, std::byte* row);

// The parts that lose least of weights (quant/fit/fit.h). type: one with a writer. All have kSuperInputs elements.
bool fit_parts(TensorType type, std::span<const float> weights, std::span<const float> importance, const CodedRow& out);

}  // namespace quire
