// bitsandbytes' layouts: LLM.int8, and NF4 and FP4 with and without double quantization.
#include <fmt/format.h>
#include <algorithm>
#include <cassert>
#include <cmath>

#include "quantize/hf/method_parts.h"
#include "quantize/hf/methods.h"
#include "quantize/hf/pack_fields.h"
#include "quantize/solve/llm_int8.h"
#include "quantize/solve/table4.h"

namespace quire {
namespace {

constexpr int kBnbFourBits[] = {4}, kBnbEightBits[] = {8};
constexpr size_t kStateBytes = 256;  // the JSON text of a module's state, padded with spaces: its size is planned

std::string fits_always(int, int, const MethodSettings&) { return ""; }

// ---- LLM.int8

std::vector<ModulePart> llm_int8_parts(int rows, int cols, const MethodSettings&) {
  const auto outputs = static_cast<uint64_t>(rows), inputs = static_cast<uint64_t>(cols);
  return {{".weight", TensorType::I8, {outputs, inputs}},
          {".SCB", TensorType::F32, {outputs}},
          {".weight_format", TensorType::U8, {}}};
}

EncodedModule encode_llm_int8(const FloatMatrix& weights, const MatrixContext&, const MethodSettings&,
                              SolverState& state) {
  const IntegerMatrix matrix = round_to_llm_int8(weights, state.team);
  std::vector<uint8_t> codes = matrix.codes;
  for (uint8_t& code : codes) code ^= 0x80;  // two's complement
  std::vector<float> largest;
  for (int r = 0; r < weights.rows; ++r) {
    float most = 0;
    for (const float w : weights.row(r)) most = std::max(most, std::fabs(w));
    largest.push_back(most);
  }
  constexpr uint8_t kInRows[] = {0};
  EncodedModule module{.parts = {bytes_of(std::span<const uint8_t>(codes)), bytes_of(std::span<const float>(largest)),
                                 bytes_of(std::span<const uint8_t>(kInRows))},
                       .values = matrix.dequantized(),
                       .note = {}};
  return module;
}

// ---- NF4 and FP4

std::vector<ModulePart> table4_parts(int rows, int cols, const MethodSettings& settings, const char* kind) {
  const uint64_t weights = static_cast<uint64_t>(rows) * static_cast<uint64_t>(cols),
                 blocks = (weights + Table4Matrix::kBlock - 1) / Table4Matrix::kBlock,
                 nested = (blocks + Table4Matrix::kNestedBlock - 1) / Table4Matrix::kNestedBlock;
  std::vector<ModulePart> parts = {
      {".weight", TensorType::U8, {(weights + 1) / 2, 1}},
      {".weight.quant_map", TensorType::F32, {16}},
      {std::string(".weight.quant_state.bitsandbytes__") + kind, TensorType::U8, {kStateBytes}},
      {".weight.absmax", settings.double_quantization ? TensorType::U8 : TensorType::F32, {blocks}}};
  if (settings.double_quantization) {
    parts.push_back({".weight.nested_absmax", TensorType::F32, {nested}});
    parts.push_back({".weight.nested_quant_map", TensorType::F32, {256}});
  }
  return parts;
}
std::vector<ModulePart> nf4_parts(int rows, int cols, const MethodSettings& settings) {
  return table4_parts(rows, cols, settings, "nf4");
}
std::vector<ModulePart> fp4_parts(int rows, int cols, const MethodSettings& settings) {
  return table4_parts(rows, cols, settings, "fp4");
}

const char* torch_name(TensorType type) {
  return type == TensorType::F16 ? "float16" : type == TensorType::BF16 ? "bfloat16" : "float32";
}

EncodedModule encode_table4(const FloatMatrix& weights, const MethodSettings& settings, SolverState& state,
                            Table4Matrix::Kind kind) {
  const Table4Matrix matrix = round_to_table4(weights, kind, settings.double_quantization, state.team);
  Json json = {{"quant_type", kind == Table4Matrix::Kind::kNf4 ? "nf4" : "fp4"},
               {"blocksize", Table4Matrix::kBlock},
               {"dtype", torch_name(settings.float_type)},
               {"shape", {matrix.rows, matrix.cols}}};
  if (settings.double_quantization) {
    json["nested_blocksize"] = Table4Matrix::kNestedBlock;
    json["nested_dtype"] = "float32";
    json["nested_offset"] = matrix.offset;
  }
  std::string text = json.dump();
  assert(text.size() <= kStateBytes);
  text.resize(kStateBytes, ' ');
  EncodedModule module;
  module.parts = {pack_pairs(matrix.codes, FirstCode::kHigh), bytes_of(std::span<const float>(table_of(kind))),
                  bytes_of(std::span<const char>(text))};
  if (settings.double_quantization) {
    module.parts.push_back(bytes_of(std::span<const uint8_t>(matrix.nested)));
    module.parts.push_back(bytes_of(std::span<const float>(matrix.nested_scales)));
    module.parts.push_back(bytes_of(std::span<const float>(dynamic_map())));
  } else {
    module.parts.push_back(bytes_of(std::span<const float>(matrix.magnitudes)));
  }
  module.values = matrix.dequantized();
  return module;
}
EncodedModule encode_nf4(const FloatMatrix& weights, const MatrixContext&, const MethodSettings& settings,
                         SolverState& state) {
  return encode_table4(weights, settings, state, Table4Matrix::Kind::kNf4);
}
EncodedModule encode_fp4(const FloatMatrix& weights, const MatrixContext&, const MethodSettings& settings,
                         SolverState& state) {
  return encode_table4(weights, settings, state, Table4Matrix::Kind::kFp4);
}

Json describe_bitsandbytes(const MethodSettings& settings, std::span<const std::string> float_modules,
                           const char* four_bit_type) {
  const bool four = four_bit_type != nullptr;
  return {{"quant_method", "bitsandbytes"},
          {"load_in_4bit", four},
          {"load_in_8bit", !four},
          {"_load_in_4bit", four},
          {"_load_in_8bit", !four},
          {"bnb_4bit_quant_type", four ? four_bit_type : "fp4"},
          {"bnb_4bit_use_double_quant", four && settings.double_quantization},
          {"bnb_4bit_compute_dtype", torch_name(settings.float_type)},
          {"bnb_4bit_quant_storage", "uint8"},
          {"llm_int8_threshold", 6.0},
          {"llm_int8_has_fp16_weight", false},
          {"llm_int8_enable_fp32_cpu_offload", false},
          {"llm_int8_skip_modules", float_modules}};
}
Json describe_llm_int8(const MethodSettings& settings, std::span<const std::string> float_modules) {
  return describe_bitsandbytes(settings, float_modules, nullptr);
}
Json describe_nf4(const MethodSettings& settings, std::span<const std::string> float_modules) {
  return describe_bitsandbytes(settings, float_modules, "nf4");
}
Json describe_fp4(const MethodSettings& settings, std::span<const std::string> float_modules) {
  return describe_bitsandbytes(settings, float_modules, "fp4");
}

}  // namespace

extern const HfMethod kLlmInt8Method = {.name = "llm-int8",
                                        .layout = "bitsandbytes",
                                        .about = "LLM.int8: int8 weights and inputs, but for inputs that are outliers",
                                        .needs = NeededInputs::kNone,
                                        .flags = 0,
                                        .bits = kBnbEightBits,
                                        .defaults = {.bits = 8, .group = 0},
                                        .misfit = fits_always,
                                        .parts = llm_int8_parts,
                                        .encode = encode_llm_int8,
                                        .scales = nullptr,
                                        .describe = describe_llm_int8};
extern const HfMethod kNf4Method = {.name = "nf4",
                                    .layout = "bitsandbytes",
                                    .about = "QLoRA's NF4: 4-bit quantiles of the normal distribution",
                                    .needs = NeededInputs::kNone,
                                    .flags = flags_of({MethodFlag::kDouble}),
                                    .bits = kBnbFourBits,
                                    .defaults = {.bits = 4, .group = 64},
                                    .misfit = fits_always,
                                    .parts = nf4_parts,
                                    .encode = encode_nf4,
                                    .scales = nullptr,
                                    .describe = describe_nf4};
extern const HfMethod kFp4Method = {.name = "fp4",
                                    .layout = "bitsandbytes",
                                    .about = "bitsandbytes' 4-bit floats",
                                    .needs = NeededInputs::kNone,
                                    .flags = flags_of({MethodFlag::kDouble}),
                                    .bits = kBnbFourBits,
                                    .defaults = {.bits = 4, .group = 64},
                                    .misfit = fits_always,
                                    .parts = fp4_parts,
                                    .encode = encode_fp4,
                                    .scales = nullptr,
                                    .describe = describe_fp4};

}  // namespace quire
