// Rounding to nearest, the baseline of all methods: int4 and int8 weights as compressed-tensors packs them.
#include "quantize/hf/method_parts.h"
#include "quantize/hf/methods.h"

namespace quire {
namespace {

constexpr int kFourBits[] = {4}, kEightBits[] = {8};

std::string misfit_of_rtn(int, int cols, const MethodSettings& settings) { return group_misfit(cols, settings); }

EncodedModule encode_rtn(const FloatMatrix& weights, const MatrixContext& context, const MethodSettings& settings,
                         SolverState& state) {
  const auto type = scale_type_of(packed_int_parts(1, weights.cols, settings)[1].type);
  return encode_packed_int(round_to_nearest(weights, context.inputs.get(), grid_of(settings, type), state.team),
                           settings);
}

Json describe_rtn(const MethodSettings& settings, std::span<const std::string> float_modules) {
  return compressed_tensors_config("pack-quantized", int_scheme(settings), nullptr, float_modules);
}

constexpr HfMethod rtn(std::string_view name, std::string_view about, std::span<const int> bits,
                       const MethodSettings& defaults) {
  return {.name = name,
          .layout = "compressed-tensors",
          .about = about,
          .needs = NeededInputs::kNone,
          .flags = flags_of({MethodFlag::kGroup, MethodFlag::kSymmetric, MethodFlag::kObserver}),
          .bits = bits,
          .defaults = defaults,
          .misfit = misfit_of_rtn,
          .parts = packed_int_parts,
          .encode = encode_rtn,
          .scales = nullptr,
          .describe = describe_rtn};
}

}  // namespace

extern const HfMethod kRtnInt4Method =
    rtn("rtn-int4", "int4, rounded to nearest", kFourBits, {.bits = 4, .group = 128});
extern const HfMethod kRtnInt8Method = rtn("rtn-int8", "int8, rounded to nearest", kEightBits, {.bits = 8, .group = 0});

}  // namespace quire
