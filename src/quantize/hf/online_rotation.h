// Inputs of linears that are rotated at run time, as compressed-tensors' transform_config says it.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "base/tensor_type.h"
#include "json/parse.h"
#include "quantize/hf/method.h"
#include "quantize/hf/source.h"
#include "quantize/solve/float_matrix.h"

namespace quire {

// The block of a matrix' inputs that is rotated at run time; 0: none. The inputs of down projections have the largest
// outliers, and no rotation of the residual stream reaches them. It costs time, and helps only where inputs are rounded.
int rotatable_block(const SourceTensor& tensor, const HfMethod& method);

// Each block of `size` inputs is multiplied by Sylvester's matrix / sqrt(size) at run time, so the weights are, too.
void rotate_inputs(int size, FloatMatrix& weights);

using RotatedModules = std::map<int, std::vector<std::string>>;  // by the size of a block

// The tensor that libraries share among the modules of a size, MODULE.NAME_input.weight: Sylvester's matrix, [size][size].
std::string rotation_tensor_name(int size, const std::vector<std::string>& modules);
std::vector<std::byte> rotation_tensor(int size, TensorType type);

Json transform_config(const RotatedModules& modules);

}  // namespace quire
