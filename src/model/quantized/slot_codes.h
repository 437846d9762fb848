// Where a quantized checkpoint keeps the codes of a model's matrices: for loading, converting and planning alike.
#pragma once

#include <optional>
#include <string>

#include "model/quantized/coded_matrix.h"
#include "model/quantized/quantization.h"
#include "model/tensor_finder.h"

namespace quire {

// Where a slot's matrix is. In a quantized checkpoint, codes also show that it is there.
Source source_of_matrix(const TensorFinder& finder, const Slot& slot, bool quantized);

// Whether the file has the codes of the transposed matrix. A stack of codes is not transposed: MXFP4 has
// [experts, outputs, inputs].
inline bool transposes_codes(const Source& source) { return source.transposed && !source.stacked; }

// The codes of the slot's matrix, [rows, cols] in the file; nothing, and errors: as open_coded_matrix().
std::optional<CodedMatrix> open_slot_codes(const Quantization& quantization, const std::string& file,
                                           const FindTensor& find, const Slot& slot, const Source& source, int rows,
                                           int cols);

}  // namespace quire
