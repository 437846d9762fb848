// MXFP4 and NVFP4 weights, as compressed-tensors packs them; inputs stay as they are (W4A16).
#include <fmt/format.h>

#include "quantize/hf/method_parts.h"
#include "quantize/hf/methods.h"
#include "quantize/hf/pack_fields.h"
#include "quantize/solve/float4.h"

namespace quire {
namespace {

constexpr int kFloat4Bits[] = {4};
constexpr int kMxfp4Group = 32, kNvfp4Group = 16;

std::string misfit_of_groups(int cols, int group) {
  return cols % group == 0 ? "" : fmt::format("{} inputs are not divisible by {}", cols, group);
}
std::string misfit_of_mxfp4(int, int cols, const MethodSettings&) { return misfit_of_groups(cols, kMxfp4Group); }
std::string misfit_of_nvfp4(int, int cols, const MethodSettings&) { return misfit_of_groups(cols, kNvfp4Group); }

std::vector<ModulePart> float4_parts(int rows, int cols, int group, TensorType scales) {
  const auto outputs = static_cast<uint64_t>(rows), inputs = static_cast<uint64_t>(cols);
  return {{".weight_packed", TensorType::U8, {outputs, inputs / 2}},
          {".weight_scale", scales, {outputs, inputs / static_cast<uint64_t>(group)}}};
}
std::vector<ModulePart> mxfp4_parts(int rows, int cols, const MethodSettings&) {
  return float4_parts(rows, cols, kMxfp4Group, TensorType::U8);
}
std::vector<ModulePart> nvfp4_parts(int rows, int cols, const MethodSettings&) {
  std::vector<ModulePart> parts = float4_parts(rows, cols, kNvfp4Group, TensorType::F8_E4M3);
  parts.push_back({".weight_global_scale", TensorType::F32, {1}});
  return parts;
}

EncodedModule pack_float4(const Float4Matrix& matrix) {
  return {.parts = {pack_pairs(matrix.codes, FirstCode::kLow), bytes_of(std::span<const uint8_t>(matrix.scales))},
          .values = matrix.dequantized(),
          .note = {}};
}
EncodedModule encode_mxfp4(const FloatMatrix& weights, const MatrixContext& context, const MethodSettings&,
                           SolverState& state) {
  return pack_float4(round_to_mxfp4(weights, importance_of(context), state.team));
}
EncodedModule encode_nvfp4(const FloatMatrix& weights, const MatrixContext& context, const MethodSettings&,
                           SolverState& state) {
  const Float4Matrix matrix = round_to_nvfp4(weights, importance_of(context), context.largest, state.team);
  EncodedModule module = pack_float4(matrix);
  module.parts.push_back(bytes_of(std::span<const float>(&matrix.divisor, 1)));
  return module;
}

Json float4_scheme(const char* strategy, int group, const char* scales) {
  return {{"num_bits", 4},       {"type", "float"},  {"symmetric", true},     {"strategy", strategy},
          {"group_size", group}, {"dynamic", false}, {"scale_dtype", scales}, {"block_structure", nullptr}};
}
Json describe_mxfp4(const MethodSettings&, std::span<const std::string> float_modules) {
  return compressed_tensors_config("mxfp4-pack-quantized", float4_scheme("group", kMxfp4Group, "torch.uint8"), nullptr,
                                   float_modules);
}
Json describe_nvfp4(const MethodSettings&, std::span<const std::string> float_modules) {
  return compressed_tensors_config("nvfp4-pack-quantized",
                                   float4_scheme("tensor_group", kNvfp4Group, "torch.float8_e4m3fn"), nullptr,
                                   float_modules);
}

}  // namespace

extern const HfMethod kMxfp4Method = {.name = "mxfp4",
                                      .layout = "compressed-tensors",
                                      .about = "MXFP4: 4-bit floats, a power of two for every 32",
                                      .needs = NeededInputs::kNone,
                                      .flags = 0,
                                      .bits = kFloat4Bits,
                                      .defaults = {.bits = 4, .group = kMxfp4Group},
                                      .misfit = misfit_of_mxfp4,
                                      .parts = mxfp4_parts,
                                      .encode = encode_mxfp4,
                                      .scales = nullptr,
                                      .describe = describe_mxfp4};
extern const HfMethod kNvfp4Method = {.name = "nvfp4",
                                      .layout = "compressed-tensors",
                                      .about = "NVFP4: 4-bit floats, an 8-bit float for every 16",
                                      .needs = NeededInputs::kNone,
                                      .joins = true,
                                      .flags = 0,
                                      .bits = kFloat4Bits,
                                      .defaults = {.bits = 4, .group = kNvfp4Group},
                                      .misfit = misfit_of_nvfp4,
                                      .parts = nvfp4_parts,
                                      .encode = encode_nvfp4,
                                      .scales = nullptr,
                                      .describe = describe_nvfp4};

}  // namespace quire
