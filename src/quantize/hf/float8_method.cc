// FP8: compressed-tensors' float-quantized with a scale for each output, and blocks as DeepSeek-V3 has them (quant_method
// fp8).
#include "quantize/hf/method_parts.h"
#include "quantize/hf/methods.h"
#include "quantize/hf/pack_fields.h"
#include "quantize/solve/float8.h"

namespace quire {
namespace {

constexpr int kFloat8Bits[] = {8};
constexpr int kFloat8Block = 128;

std::string float8_fits(int, int, const MethodSettings&) { return ""; }

EncodedModule encode_float8(const Float8Matrix& matrix, ScaleType type) {
  return {.parts = {bytes_of(std::span<const uint8_t>(matrix.codes)), stored_scales(matrix.scales, type)},
          .values = matrix.dequantized(),
          .note = {}};
}

std::vector<ModulePart> float8_rows_parts(int rows, int cols, const MethodSettings& settings) {
  const auto outputs = static_cast<uint64_t>(rows), inputs = static_cast<uint64_t>(cols);
  return {{".weight", TensorType::F8_E4M3, {outputs, inputs}}, {".weight_scale", settings.float_type, {outputs, 1}}};
}
EncodedModule encode_float8_rows(const FloatMatrix& weights, const MatrixContext&, const MethodSettings& settings,
                                 SolverState& state) {
  const ScaleType type = scale_type_of(settings.float_type);
  return encode_float8(round_to_float8(weights, 1, 0, type, state.team), type);
}
Json describe_float8_rows(const MethodSettings&, std::span<const std::string> float_modules) {
  const Json weights = {{"num_bits", 8},         {"type", "float"},       {"symmetric", true},
                        {"strategy", "channel"}, {"group_size", nullptr}, {"block_structure", nullptr},
                        {"dynamic", false}};
  Json inputs = weights;
  inputs["strategy"] = "token";
  inputs["dynamic"] = true;
  return compressed_tensors_config("float-quantized", weights, inputs, float_modules);
}

std::vector<ModulePart> float8_block_parts(int rows, int cols, const MethodSettings&) {
  const auto outputs = static_cast<uint64_t>(rows), inputs = static_cast<uint64_t>(cols);
  const auto blocks = [](uint64_t n) { return (n + kFloat8Block - 1) / kFloat8Block; };
  return {{".weight", TensorType::F8_E4M3, {outputs, inputs}},
          {".weight_scale_inv", TensorType::F32, {blocks(outputs), blocks(inputs)}}};
}
EncodedModule encode_float8_blocks(const FloatMatrix& weights, const MatrixContext&, const MethodSettings&,
                                   SolverState& state) {
  return encode_float8(round_to_float8(weights, kFloat8Block, kFloat8Block, ScaleType::kF32, state.team),
                       ScaleType::kF32);
}
Json describe_float8_blocks(const MethodSettings&, std::span<const std::string> float_modules) {
  return {{"quant_method", "fp8"},
          {"fmt", "e4m3"},
          {"activation_scheme", "dynamic"},
          {"weight_block_size", {kFloat8Block, kFloat8Block}},
          {"modules_to_not_convert", float_modules}};
}

}  // namespace

extern const HfMethod kFp8Method = {.name = "fp8",
                                    .layout = "compressed-tensors",
                                    .about = "FP8 (E4M3), a scale for each output",
                                    .needs = NeededInputs::kNone,
                                    .rounds_inputs = true,
                                    .flags = 0,
                                    .bits = kFloat8Bits,
                                    .defaults = {.bits = 8, .group = 0},
                                    .misfit = float8_fits,
                                    .parts = float8_rows_parts,
                                    .encode = encode_float8_rows,
                                    .scales = nullptr,
                                    .describe = describe_float8_rows};
extern const HfMethod kFp8BlockMethod = {
    .name = "fp8-block",
    .layout = "fp8",
    .about = "FP8 (E4M3), a scale for each block of 128 x 128, as DeepSeek-V3 has it",
    .needs = NeededInputs::kNone,
    .flags = 0,
    .bits = kFloat8Bits,
    .defaults = {.bits = 8, .group = 0},
    .misfit = float8_fits,
    .parts = float8_block_parts,
    .encode = encode_float8_blocks,
    .scales = nullptr,
    .describe = describe_float8_blocks};

}  // namespace quire
