#include "quantize/hf/method_parts.h"

#include <fmt/format.h>

#include "quantize/hf/pack_fields.h"

namespace quire {
namespace {

// Scales of compressed-tensors have the model's type. With zero points, scale * code and scale * zero must be exact in
// float32, so that readers that subtract before or after multiplying agree: float16 scales are short enough, float32 ones
// are not.
ScaleType packed_scale_type(const MethodSettings& settings) {
  const ScaleType type = scale_type_of(settings.float_type);
  return type == ScaleType::kF32 && !settings.symmetric ? ScaleType::kF16 : type;
}

}  // namespace

ScaleType scale_type_of(TensorType type) {
  return type == TensorType::F16 ? ScaleType::kF16 : type == TensorType::BF16 ? ScaleType::kBf16 : ScaleType::kF32;
}
TensorType tensor_type_of(ScaleType type) {
  return type == ScaleType::kF16 ? TensorType::F16 : type == ScaleType::kBf16 ? TensorType::BF16 : TensorType::F32;
}

IntegerGrid grid_of(const MethodSettings& settings, ScaleType scales) {
  return {.bits = settings.bits,
          .group = settings.group,
          .symmetric = settings.symmetric,
          .least_squares = settings.least_squares,
          .scale_type = scales};
}

std::string group_misfit(int cols, const MethodSettings& settings) {
  if (settings.group <= 0 || cols % settings.group == 0) return "";
  return fmt::format("{} inputs are not divisible by groups of {}", cols, settings.group);
}

std::vector<float> importance_of(const MatrixContext& context) {
  return context.inputs ? mean_squares(*context.inputs) : std::vector<float>();
}

Json compressed_tensors_config(const char* format, Json weights, Json inputs,
                               std::span<const std::string> float_modules) {
  Json group = {{"targets", {"Linear"}},
                {"weights", std::move(weights)},
                {"input_activations", std::move(inputs)},
                {"output_activations", nullptr},
                {"format", format}};
  Json groups = Json::object();
  groups["group_0"] = std::move(group);
  return {{"quant_method", "compressed-tensors"}, {"format", format},        {"quantization_status", "compressed"},
          {"config_groups", std::move(groups)},   {"ignore", float_modules}, {"kv_cache_scheme", nullptr},
          {"global_compression_ratio", nullptr}};
}

Json int_scheme(const MethodSettings& settings) {
  const bool has_groups = settings.group > 0;
  return {{"num_bits", settings.bits},
          {"type", "int"},
          {"symmetric", settings.symmetric},
          {"strategy", has_groups ? "group" : "channel"},
          {"group_size", has_groups ? Json(settings.group) : Json(nullptr)},
          {"block_structure", nullptr},
          {"dynamic", false},
          {"actorder", nullptr},
          {"observer", settings.least_squares ? "mse" : "minmax"}};
}

std::vector<ModulePart> packed_int_parts(int rows, int cols, const MethodSettings& settings) {
  const auto outputs = static_cast<uint64_t>(rows), inputs = static_cast<uint64_t>(cols);
  const auto groups = static_cast<uint64_t>(grid_of(settings, ScaleType::kF32).groups(cols));
  std::vector<ModulePart> parts = {{".weight_packed", TensorType::I32, {outputs, words_for(inputs, settings.bits)}},
                                   {".weight_scale", tensor_type_of(packed_scale_type(settings)), {outputs, groups}},
                                   {".weight_shape", TensorType::I64, {2}}};
  if (!settings.symmetric)
    parts.push_back({".weight_zero_point", TensorType::I32, {words_for(outputs, settings.bits), groups}});
  return parts;
}

EncodedModule encode_packed_int(const IntegerMatrix& matrix, const MethodSettings& settings) {
  const auto rows = static_cast<size_t>(matrix.rows), groups = static_cast<size_t>(matrix.groups());
  const size_t words = words_for(static_cast<uint64_t>(matrix.cols), settings.bits);
  std::vector<uint32_t> packed(rows * words);
  for (int r = 0; r < matrix.rows; ++r)
    pack_fields(matrix.codes_of(r), settings.bits, std::span(packed).subspan(static_cast<size_t>(r) * words, words));
  const int64_t shape[] = {matrix.rows, matrix.cols};
  EncodedModule module;
  module.parts = {bytes_of(std::span<const uint32_t>(packed)), stored_scales(matrix.scales, matrix.grid.scale_type),
                  bytes_of(std::span<const int64_t>(shape))};
  if (!settings.symmetric) {
    const size_t zero_words = words_for(rows, settings.bits);
    std::vector<uint32_t> zeros(zero_words * groups), column(zero_words);
    std::vector<uint8_t> fields(rows);
    for (size_t g = 0; g < groups; ++g) {
      for (size_t r = 0; r < rows; ++r) fields[r] = matrix.zeros[r * groups + g];
      pack_fields(fields, settings.bits, column);
      for (size_t w = 0; w < zero_words; ++w) zeros[w * groups + g] = column[w];
    }
    module.parts.push_back(bytes_of(std::span<const uint32_t>(zeros)));
  }
  module.values = matrix.dequantized();
  return module;
}

}  // namespace quire
