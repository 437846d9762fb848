// A weight of int8 with scales in tensors next to it: compressed-tensors "int-quantized", bitsandbytes LLM.int8.
#include <algorithm>
#include <cmath>

#include "model/quantized/methods.h"
#include "model/quantized/scales.h"

namespace quire {
namespace {

CodedMatrix int8_matrix(const ModuleTensors& module, const CodedScheme& scheme, int group) {
  CodedMatrix m;
  m.format.codes = Codes::kI8;
  m.format.scale = ScaleKind::kF32;
  m.format.group = group;
  m.inputs = scheme.inputs;
  if (m.inputs.kind != InputCodes::Kind::kStatic) return m;
  using Shape = ModuleTensors::Shape;
  const TensorView& scale = module.get(".input_scale", kFloatTypes, {Shape{1}, Shape{}});
  m.inputs.scale = read_float(scale, 0);
  if (!(m.inputs.scale > 0 && std::isfinite(m.inputs.scale)))
    throw module.error(scale, "is {}, expected a positive number", m.inputs.scale);
  return m;
}

void copy_row(std::span<const std::byte> weights, int row, std::span<uint8_t> codes) {
  std::memcpy(codes.data(), weights.data() + static_cast<size_t>(row) * codes.size(), codes.size());
}

// LLM.int8: SCB is each output's greatest magnitude.
CodedMatrix open_llm_int8(const ModuleTensors& module, const CodedScheme& scheme, const TensorView& weights) {
  const TensorView& greatest = module.get(".SCB", kFloatTypes, ModuleTensors::Shape{module.rows()});
  if (module.find(".weight_format")) {
    const TensorView& layout = module.get(".weight_format", {TensorType::U8}, {ModuleTensors::Shape{}, {1}});
    if (const auto value = load_at<uint8_t>(layout.bytes, 0); value != 0)
      throw module.error(layout, "is {}, expected 0 for rows in order", value);
  }
  CodedMatrix m = int8_matrix(module, scheme, whole_row(module.name().cols));
  m.read_rows = each_row([weights = weights.bytes, greatest = &greatest, label = TensorLabel(module, greatest)](
                             int row, const CodedRow& out) {
    copy_row(weights, row, out.codes);
    const float magnitude = read_float(*greatest, static_cast<size_t>(row));
    check_scale(magnitude, Sign::kNotNegative, label, row);
    out.scales[0] = std::bit_cast<uint32_t>(magnitude / 127);
  });
  return m;
}

}  // namespace

CodedMatrix open_int8(const ModuleTensors& module, const CodedScheme& scheme) {
  const TensorView& weights =
      module.get(".weight", {TensorType::I8}, ModuleTensors::Shape{module.rows(), module.cols()});
  if (scheme.form == CodedForm::kBnb8) return open_llm_int8(module, scheme, weights);
  ScaleGrid scales(module, ".weight_scale", scheme, Sign::kAny);
  CodedMatrix m = int8_matrix(module, scheme, scales.group());
  std::span<const std::byte> zeros;
  if (!scheme.symmetric) {
    const ModuleTensors::Shape& shape = module.get(".weight_scale").shape;
    zeros = module.get(".weight_zero_point", {TensorType::I8}, shape).bytes;
    if (std::ranges::all_of(zeros, [](std::byte zero) { return zero == std::byte{0}; })) zeros = {};
    if (!zeros.empty()) m.format.zeros = ZeroKind::kInteger;
  }
  m.read_rows = each_row([=, weights = weights.bytes](int row, const CodedRow& out) {
    copy_row(weights, row, out.codes);
    scales.read(row, out.scales);
    for (size_t g = 0; g < scales.width() && !zeros.empty(); ++g)
      out.minima[g] = load_at<uint8_t>(zeros, scales.first_of(row) + g);
  });
  return m;
}

}  // namespace quire
