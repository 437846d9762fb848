// How a Hugging Face checkpoint changes the inputs of a linear: rotations (transform_config) and factors
// (pre_quant_scale).
#pragma once

#include <span>
#include <string>

#include "model/quantized/coded_matrix.h"
#include "ops/input_transform.h"

namespace quire {

// Whether a tensor has factors of a linear's inputs. NVIDIA's ModelOpt writes them for AWQ.
bool has_input_factors(const TensorView& tensor);

struct CheckpointTensors {
  const std::string& file;
  const FindTensor& find;
  std::span<const TensorView> all;
};

// The transform of the module's `cols` inputs, without an order; empty: none. Throws Error naming the file and the tensor or the field:
// a wrong shape or type, a number that cannot be, blocks that do not divide the inputs, a matrix that is missing or is
// none of Hadamard's.
InputTransform read_input_transform(const Quantization& quantization, const CheckpointTensors& tensors,
                                    const std::string& module, int cols);

}  // namespace quire
