// What several methods of Hugging Face checkpoints have in common: scale types, settings in config.json, reasons.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "base/tensor_type.h"
#include "json/parse.h"
#include "quantize/hf/method.h"
#include "quantize/solve/integer_grid.h"

namespace quire {

ScaleType scale_type_of(TensorType type);  // of F32, F16 and BF16
TensorType tensor_type_of(ScaleType type);

// The grid of the settings, for scales of this type.
IntegerGrid grid_of(const MethodSettings& settings, ScaleType scales);

// "" or why groups do not divide the inputs: formats have no shorter last group that all readers take.
std::string group_misfit(int cols, const MethodSettings& settings);

// Mean squares of the inputs; empty: nothing is known of them.
std::vector<float> importance_of(const MatrixContext& context);

// compressed-tensors' quantization_config with one group of all linears. weights: its scheme; inputs: null: not quantized.
Json compressed_tensors_config(const char* format, Json weights, Json inputs,
                               std::span<const std::string> float_modules);

// The scheme of int weights, as compressed-tensors spells it.
Json int_scheme(const MethodSettings& settings);

// Packs an integer matrix as compressed-tensors' pack-quantized does; parts: what it fills.
std::vector<ModulePart> packed_int_parts(int rows, int cols, const MethodSettings& settings);
EncodedModule encode_packed_int(const IntegerMatrix& matrix, const MethodSettings& settings);

}  // namespace quire
