// AWQ's "gemm" layout, as AutoAWQ writes it: words of eight outputs in an order of their own, with zero points.
#include <fmt/format.h>
#include <array>

#include "quantize/hf/method_parts.h"
#include "quantize/hf/methods.h"
#include "quantize/hf/pack_fields.h"
#include "quantize/solve/awq.h"

namespace quire {
namespace {

constexpr int kAwqBits[] = {4};
constexpr size_t kOutputsOfWord = 8;
constexpr std::array<int, kOutputsOfWord> kShifts = {0, 16, 4, 20, 8, 24, 12, 28};  // of the outputs in a word
constexpr ScaleType kAwqScales = ScaleType::kF16;

std::string misfit_of_awq(int rows, int cols, const MethodSettings& settings) {
  if (rows % static_cast<int>(kOutputsOfWord) != 0)
    return fmt::format("{} outputs are not divisible by {}", rows, kOutputsOfWord);
  return group_misfit(cols, settings);
}

std::vector<ModulePart> awq_parts(int rows, int cols, const MethodSettings& settings) {
  const auto outputs = static_cast<uint64_t>(rows), inputs = static_cast<uint64_t>(cols);
  const auto groups = static_cast<uint64_t>(grid_of(settings, kAwqScales).groups(cols));
  return {{".qweight", TensorType::I32, {inputs, outputs / kOutputsOfWord}},
          {".qzeros", TensorType::I32, {groups, outputs / kOutputsOfWord}},
          {".scales", TensorType::F16, {groups, outputs}}};
}

EncodedModule encode_awq(const FloatMatrix& weights, const MatrixContext& context, const MethodSettings& settings,
                         SolverState& state) {
  const IntegerGrid grid = grid_of(settings, kAwqScales);
  const bool is_known = context.inputs && context.inputs->rows > 0;
  const IntegerMatrix matrix = is_known && settings.least_squares
                                   ? round_with_clipping(weights, *context.inputs, grid, state.team)
                                   : round_to_nearest(weights, nullptr, grid, state.team);
  const auto rows = static_cast<size_t>(matrix.rows), cols = static_cast<size_t>(matrix.cols),
             groups = static_cast<size_t>(matrix.groups()), words = rows / kOutputsOfWord;
  std::vector<uint32_t> codes(cols * words), zeros(groups * words);
  std::vector<float> scales(groups * rows);
  for (size_t r = 0; r < rows; ++r) {
    const int shift = kShifts[r % kOutputsOfWord];
    const std::span<const uint8_t> row = matrix.codes_of(static_cast<int>(r));
    for (size_t c = 0; c < cols; ++c) codes[c * words + r / kOutputsOfWord] |= uint32_t{row[c]} << shift;
    for (size_t g = 0; g < groups; ++g) {
      zeros[g * words + r / kOutputsOfWord] |= uint32_t{matrix.zeros[r * groups + g]} << shift;
      scales[g * rows + r] = matrix.scales[r * groups + g];
    }
  }
  return {.parts = {bytes_of(std::span<const uint32_t>(codes)), bytes_of(std::span<const uint32_t>(zeros)),
                    stored_scales(scales, kAwqScales)},
          .values = matrix.dequantized(),
          .note = is_known ? "" : "no inputs reached it in the calibration text: rounded to nearest"};
}

InputScales awq_scales(const FloatMatrix& weights, std::span<const float>, const InputStatistics& inputs,
                       std::span<const int> tied, const MethodSettings& settings, Team& team) {
  return search_awq_scales(weights, inputs, grid_of(settings, kAwqScales), tied, team);
}

Json describe_awq(const MethodSettings& settings, std::span<const std::string> float_modules) {
  return {{"quant_method", "awq"}, {"bits", settings.bits}, {"group_size", settings.group > 0 ? settings.group : -1},
          {"zero_point", true},    {"version", "gemm"},     {"modules_to_not_convert", float_modules}};
}

}  // namespace

extern const HfMethod kAwqMethod = {
    .name = "awq",
    .layout = "awq",
    .about = "AWQ: int4 with zero points, weights of large inputs scaled up before they are rounded",
    .needs = NeededInputs::kGram,
    .flags = flags_of({MethodFlag::kGroup, MethodFlag::kObserver}),
    .bits = kAwqBits,
    .defaults = {.bits = 4, .group = 128, .symmetric = false},
    .misfit = misfit_of_awq,
    .parts = awq_parts,
    .encode = encode_awq,
    .scales = awq_scales,
    .describe = describe_awq};

}  // namespace quire
