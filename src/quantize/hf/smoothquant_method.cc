// SmoothQuant: int8 weights and inputs (W8A8), as compressed-tensors' int-quantized.
#include "quantize/hf/method_parts.h"
#include "quantize/hf/methods.h"
#include "quantize/hf/pack_fields.h"
#include "quantize/solve/smoothquant.h"

namespace quire {
namespace {

constexpr int kSmoothBits[] = {8};

std::string misfit_of_smoothquant(int, int, const MethodSettings&) { return ""; }

std::vector<ModulePart> smoothquant_parts(int rows, int cols, const MethodSettings& settings) {
  const auto outputs = static_cast<uint64_t>(rows), inputs = static_cast<uint64_t>(cols);
  return {{".weight", TensorType::I8, {outputs, inputs}}, {".weight_scale", settings.float_type, {outputs, 1}}};
}

EncodedModule encode_smoothquant(const FloatMatrix& weights, const MatrixContext&, const MethodSettings& settings,
                                 SolverState& state) {
  const IntegerGrid grid = int8_rows(scale_type_of(settings.float_type));
  const IntegerMatrix matrix = round_to_nearest(weights, nullptr, grid, state.team);
  std::vector<uint8_t> codes = matrix.codes;
  for (uint8_t& code : codes) code ^= 0x80;  // two's complement
  return {.parts = {bytes_of(std::span<const uint8_t>(codes)), stored_scales(matrix.scales, grid.scale_type)},
          .values = matrix.dequantized(),
          .note = {}};
}

InputScales smoothquant_scales(const FloatMatrix& weights, std::span<const float> largest_weights,
                               const InputStatistics& inputs, std::span<const int> tied, const MethodSettings& settings,
                               Team& team) {
  return search_smooth_scales(weights, largest_weights, inputs, tied, settings.alpha, team);
}

Json describe_smoothquant(const MethodSettings& settings, std::span<const std::string> float_modules) {
  MethodSettings weights = settings;
  weights.least_squares = false;
  const Json inputs = {{"num_bits", 8},       {"type", "int"},         {"symmetric", true},
                       {"strategy", "token"}, {"group_size", nullptr}, {"block_structure", nullptr},
                       {"dynamic", true}};
  return compressed_tensors_config("int-quantized", int_scheme(weights), inputs, float_modules);
}

}  // namespace

extern const HfMethod kSmoothQuantMethod = {
    .name = "smoothquant",
    .layout = "compressed-tensors",
    .about = "SmoothQuant: int8 weights and inputs, outliers of inputs moved to weights",
    .needs = NeededInputs::kSample,
    .rounds_inputs = true,
    .flags = flags_of({MethodFlag::kAlpha}),
    .bits = kSmoothBits,
    .defaults = {.bits = 8, .group = 0},
    .misfit = misfit_of_smoothquant,
    .parts = smoothquant_parts,
    .encode = encode_smoothquant,
    .scales = smoothquant_scales,
    .describe = describe_smoothquant};

}  // namespace quire
