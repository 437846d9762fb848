// A quantized matrix of a Hugging Face checkpoint, as rows of codes.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "format/tensor_view.h"
#include "model/quantized/quantization.h"
#include "quant/panel_format.h"

namespace quire {

// A view of the file's tensors, which must outlive it.
struct CodedMatrix {
  PanelFormat format;  // kF32: a row's codes are the bytes of its numbers, 4 for each input
  float factor = 1;    // multiplies kE4M3 scales
  // Input i of the rows is input permutation[i] of the model, so that groups are neighbours; empty: they are the same.
  std::vector<int32_t> permutation;
  InputCodes inputs;

  // Reads the rows of these numbers; fastest for neighbours. Any thread may call it. out: a CodedRow for each. Throws
  // Error naming the tensor if a number is damaged: a scale that is NaN, infinite or negative where it cannot be, a
  // code that is NaN.
  std::function<void(std::span<const int> rows, std::span<const CodedRow> out)> read_rows;
};

// Which matrix: [rows, cols], or one of a stack of so many in one tensor.
struct CodedMatrixName {
  std::string module;  // "model.layers.0.mlp.up_proj": the name of the weight without ".weight"
  int rows = 0, cols = 0;
  int item = 0, items = 0;  // items 0: no stack
};

// Finds a tensor of the file, and counts it as used; null: there is none.
using FindTensor = std::function<const TensorView*(const std::string& name)>;

// What follows a module in the name of the tensor that shows that it is quantized. Some methods call it ".weight".
inline constexpr std::string_view kCodeEndings[] = {".qweight", ".weight_packed", "._weight_qdata", ".W_q", "_blocks"};

// The module of a tensor with its codes, or with its weight.
std::string_view module_of(std::string_view tensor);

// Nothing: the module has no codes, only a plain weight or none at all. Reads no data but g_idx, zero points and what
// belongs to the whole matrix. Throws Error naming `file` and the tensor: missing, of the wrong type or shape, not as
// config.json says.
std::optional<CodedMatrix> open_coded_matrix(const Quantization& quantization, const std::string& file,
                                             const FindTensor& find, const CodedMatrixName& name);

}  // namespace quire
