// compressed-tensors "pack-quantized": weight_packed [outputs, inputs * bits / 32] has words of consecutive inputs;
// weight_zero_point [outputs * bits / 32, groups] has words of consecutive outputs. All are stored plus 2^(bits - 1).
#include "model/quantized/bit_fields.h"
#include "model/quantized/group_order.h"
#include "model/quantized/methods.h"
#include "model/quantized/scales.h"

namespace quire {
namespace {

// The tensor that repeats the matrix's shape.
void check_shape(const ModuleTensors& module) {
  if (!module.find(".weight_shape")) return;
  const TensorView& shape = module.get(".weight_shape", {TensorType::I64, TensorType::I32}, ModuleTensors::Shape{2});
  const auto at = [&](size_t i) {
    return shape.type == TensorType::I64 ? load_at<int64_t>(shape.bytes, i) : load_at<int32_t>(shape.bytes, i);
  };
  if (at(0) != module.name().rows || at(1) != module.name().cols)
    throw module.error(shape, "is [{}, {}], expected [{}, {}]", at(0), at(1), module.rows(), module.cols());
}

}  // namespace

CodedMatrix open_packed_int(const ModuleTensors& module, const CodedScheme& scheme) {
  using Shape = ModuleTensors::Shape;
  const size_t cols = module.cols(), bits = static_cast<size_t>(scheme.bits), words = ceil_div(cols * bits, 32);
  const TensorView& weights = module.get(".weight_packed", {TensorType::I32}, Shape{module.rows(), words});
  check_shape(module);
  ScaleGrid scales(module, ".weight_scale", scheme, Sign::kAny);
  const size_t groups = scales.width();
  std::span<const std::byte> zeros;
  if (!scheme.symmetric) {
    zeros =
        module.get(".weight_zero_point", {TensorType::I32}, Shape{ceil_div(module.rows() * bits, 32), groups}).bytes;
  }
  GroupOrder order = read_group_order(module, ".weight_g_idx", scales.group(), scheme.act_order);

  CodedMatrix m;
  m.format.codes = bits == 4 ? Codes::kU4 : Codes::kI8;
  m.format.scale = ScaleKind::kF32;
  m.format.zeros = scheme.symmetric ? ZeroKind::kConstant : ZeroKind::kInteger;
  m.format.zero = scheme.symmetric && bits == 4 ? 8 : 0;
  m.format.group = scales.group();
  m.permutation = std::move(order.permutation);
  m.inputs = scheme.inputs;
  m.read_rows = each_row([=, weights = weights.bytes, slots = std::move(order.slots)](int row, const CodedRow& out) {
    const auto n = static_cast<size_t>(row);
    const std::byte* fields = weights.data() + n * words * sizeof(uint32_t);
    if (bits == 4) {
      unpack_nibbles<FirstNibble::kLow>(fields, cols, out.codes.data());
    } else {
      unpack_offset_bytes(fields, cols, out.codes.data());
    }
    if (!slots.empty()) {
      const std::vector<uint8_t> in_order(out.codes.begin(), out.codes.end());
      for (size_t i = 0; i < cols; ++i) out.codes[static_cast<size_t>(slots[i])] = in_order[i];
    }
    scales.read(row, out.scales);
    for (size_t g = 0; g < groups && !zeros.empty(); ++g) {
      const size_t fields = 32 / bits;
      const uint32_t word = load_at<uint32_t>(zeros, n / fields * groups + g);
      const uint32_t zero = word >> n % fields * bits & ((1u << bits) - 1);
      out.minima[g] = bits == 8 ? zero ^ 128 : zero;
    }
  });
  return m;
}

}  // namespace quire
