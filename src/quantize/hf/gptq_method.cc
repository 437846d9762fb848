// GPTQ's layout, as GPTQModel and AutoGPTQ write it: words of codes along the inputs. Zero points are stored less one in the
// format "gptq", and as they are in "gptq_v2". Readers agree about the first only for symmetric weights, whose zero point is
// never 0, so the others are written as the second.
#include <fmt/format.h>

#include <algorithm>

#include "quantize/hf/method_parts.h"
#include "quantize/hf/methods.h"
#include "quantize/hf/pack_fields.h"
#include "quantize/solve/gptq.h"

namespace quire {
namespace {

constexpr int kGptqBits[] = {2, 3, 4, 8};
constexpr ScaleType kGptqScales = ScaleType::kF16;

IntegerGrid gptq_grid(const MethodSettings& settings) { return grid_of(settings, kGptqScales); }

std::string misfit_of_gptq(int rows, int cols, const MethodSettings& settings) {
  // Whole units of 32 fields: words do not end with them at 3 bits.
  const int fields = settings.bits == 3 ? 32 : 32 / settings.bits;
  if (rows % fields != 0 || cols % fields != 0)
    return fmt::format("{} outputs of {} inputs are not both divisible by {}, as {} bits need", rows, cols, fields,
                       settings.bits);
  return group_misfit(cols, settings);
}

std::vector<ModulePart> gptq_parts(int rows, int cols, const MethodSettings& settings) {
  const auto outputs = static_cast<uint64_t>(rows), inputs = static_cast<uint64_t>(cols);
  const auto groups = static_cast<uint64_t>(gptq_grid(settings).groups(cols));
  return {{".qweight", TensorType::I32, {words_for(inputs, settings.bits), outputs}},
          {".qzeros", TensorType::I32, {groups, words_for(outputs, settings.bits)}},
          {".scales", TensorType::F16, {groups, outputs}},
          {".g_idx", TensorType::I32, {inputs}}};
}

EncodedModule pack_gptq(const IntegerMatrix& matrix) {
  const int bits = matrix.grid.bits, less = matrix.grid.symmetric ? 1 : 0;
  const auto rows = static_cast<size_t>(matrix.rows), groups = static_cast<size_t>(matrix.groups());
  const size_t words = words_for(static_cast<uint64_t>(matrix.cols), bits), zero_words = words_for(rows, bits);
  std::vector<uint32_t> codes(words * rows), column(words), zeros(groups * zero_words);
  for (size_t r = 0; r < rows; ++r) {
    pack_fields(matrix.codes_of(static_cast<int>(r)), bits, column);
    for (size_t w = 0; w < words; ++w) codes[w * rows + r] = column[w];
  }
  std::vector<uint8_t> fields(rows);
  std::vector<float> scales(groups * rows);
  for (size_t g = 0; g < groups; ++g) {
    for (size_t r = 0; r < rows; ++r) {
      fields[r] = static_cast<uint8_t>(matrix.zeros[r * groups + g] - less);
      scales[g * rows + r] = matrix.scales[r * groups + g];
    }
    pack_fields(fields, bits, std::span(zeros).subspan(g * zero_words, zero_words));
  }
  return {.parts = {bytes_of(std::span<const uint32_t>(codes)), bytes_of(std::span<const uint32_t>(zeros)),
                    stored_scales(scales, kGptqScales), bytes_of(std::span<const int32_t>(matrix.group_of))},
          .values = matrix.dequantized(),
          .note = {}};
}

EncodedModule encode_gptq(const FloatMatrix& weights, const MatrixContext& context, const MethodSettings& settings,
                          SolverState& state) {
  const IntegerGrid grid = gptq_grid(settings);
  if (!context.inputs || context.inputs->rows == 0) {
    EncodedModule module = pack_gptq(round_to_nearest(weights, nullptr, grid, state.team));
    module.note = "no inputs reached it in the calibration text: rounded to nearest";
    return module;
  }
  const InputStatistics& inputs = *context.inputs;
  const double damping = settings.damping.value_or(usual_damping(inputs));
  if (state.factored != context.inputs) {
    state.factor = factor_inverse(inputs, settings.act_order, damping, state.team);
    state.factored = context.inputs;
  }
  EncodedModule module = pack_gptq(solve_gptq(weights, state.factor, grid, settings.static_groups, state.team));
  if (state.factor.damping > damping) {
    module.note =
        fmt::format("the inputs' Gram matrix is singular: damped by {:.3g} of its mean diagonal instead of {:.3g}",
                    state.factor.damping, damping);
  } else if (inputs.rows < rows_needed(inputs)) {
    module.note = fmt::format("{} rows of its {} inputs are too few, GPTQ overfits: calibrate with at least {} tokens",
                              inputs.rows, inputs.cols, rows_needed(inputs));
  }
  return module;
}

std::string escaped(const std::string& text) {
  std::string pattern;
  for (const char c : text) pattern += c == '.' ? std::string("\\.") : std::string(1, c);
  return pattern;
}

Json describe_gptq(const MethodSettings& settings, std::span<const std::string> float_modules) {
  Json config = {{"quant_method", "gptq"},
                 {"bits", settings.bits},
                 {"group_size", settings.group > 0 ? settings.group : -1},
                 {"desc_act", settings.act_order && !settings.static_groups},
                 {"sym", settings.symmetric},
                 {"lm_head", false},
                 {"checkpoint_format", settings.symmetric ? "gptq" : "gptq_v2"},
                 {"pack_dtype", "int32"},
                 {"damp_percent", settings.damping.value_or(0.01)},
                 {"static_groups", settings.static_groups},
                 {"true_sequential", false}};
  Json dynamic = Json::object();
  for (const std::string& module : float_modules) {
    if (module != "lm_head") dynamic["-:^" + escaped(module) + "$"] = Json::object();
  }
  if (!dynamic.empty()) config["dynamic"] = std::move(dynamic);
  return config;
}

}  // namespace

extern const HfMethod kGptqMethod = {.name = "gptq",
                                     .layout = "gptq",
                                     .about = "GPTQ: int2 to int8, each error made up for by the inputs that follow",
                                     .needs = NeededInputs::kGram,
                                     .flags = flags_of({MethodFlag::kBits, MethodFlag::kGroup, MethodFlag::kSymmetric,
                                                        MethodFlag::kObserver, MethodFlag::kOrder}),
                                     .bits = kGptqBits,
                                     .defaults = {.bits = 4, .group = 128},
                                     .misfit = misfit_of_gptq,
                                     .parts = gptq_parts,
                                     .encode = encode_gptq,
                                     .scales = nullptr,
                                     .describe = describe_gptq};

}  // namespace quire
