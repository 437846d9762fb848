// ModelOpt's int4: weight [outputs / 2, inputs] has a pair of outputs in each byte, the even one in the low half, as
// two's complement; weight_scale [outputs, groups].
#include "model/quantized/methods.h"
#include "model/quantized/scales.h"

namespace quire {

int group_by_shape(const ModuleTensors& module, std::string_view ending, int group) {
  if (group > 0) return group;
  const TensorView& scales = module.get(ending);
  const uint64_t count = scales.shape.size() == 2 ? scales.shape[1] : 0;
  const uint64_t size = count > 0 && module.cols() % count == 0 ? module.cols() / count : 0;
  if (size != 16 && (size == 0 || size % 32 != 0))
    throw module.error(scales, "has shape {}: {} inputs need groups of 16, or of a multiple of 32",
                       shape_text(scales.shape), module.cols());
  return static_cast<int>(size);
}

CodedMatrix open_int4_pairs(const ModuleTensors& module, const CodedScheme& scheme) {
  using Shape = ModuleTensors::Shape;
  const size_t rows = module.rows(), cols = module.cols();
  const TensorView& weights = module.get(".weight", {TensorType::U8}, Shape{ceil_div(rows, 2), cols});
  CodedScheme grouped = scheme;
  grouped.group = group_by_shape(module, ".weight_scale", scheme.group);
  const ScaleGrid scales(module, ".weight_scale", grouped, Sign::kAny);
  module.find(".weight_scale_2");  // W4A8 rounds the weights to FP8 with it, which only its kernels need
  CodedMatrix m;
  m.format.codes = Codes::kU4;
  m.format.scale = ScaleKind::kF32;
  m.format.zero = 8;
  m.format.group = scales.group();
  m.inputs = scheme.inputs;
  m.read_rows = each_row([=, bytes = weights.bytes](int row, const CodedRow& out) {
    const auto n = static_cast<size_t>(row);
    const std::byte* pairs = bytes.data() + n / 2 * cols;
    const int shift = n % 2 == 0 ? 0 : 4;
    for (size_t i = 0; i < cols; ++i)
      out.codes[i] = static_cast<uint8_t>(static_cast<uint8_t>(pairs[i] >> shift & std::byte{15}) ^ 8u);
    scales.read(row, out.scales);
  });
  return m;
}

}  // namespace quire
