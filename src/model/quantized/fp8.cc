// A weight of E4M3: compressed-tensors "float-quantized", and the method "fp8".
#include <cmath>

#include "model/quantized/methods.h"
#include "model/quantized/scales.h"

namespace quire {
namespace {

// NaN is 0x7f and 0xff. Adding one to 7 bits carries into the eighth for these alone.
bool has_nan(std::span<const uint8_t> codes) {
  constexpr uint64_t kLow = 0x7f7f7f7f7f7f7f7f, kOnes = 0x0101010101010101;
  uint64_t carries = 0;
  size_t i = 0;
  for (; i + 8 <= codes.size(); i += 8)
    carries |= (load_at<uint64_t>(std::as_bytes(codes.subspan(i)), 0) & kLow) + kOnes;
  for (; i < codes.size(); ++i) carries |= (codes[i] & 0x7fu) + 1;
  return (carries & ~kLow) != 0;
}

}  // namespace

void copy_e4m3(std::span<const std::byte> from, const TensorLabel& label, int row, std::span<uint8_t> codes) {
  std::memcpy(codes.data(), from.data(), codes.size());
  if (has_nan(codes)) throw label.damaged("value", NAN, row);
}

CodedMatrix open_fp8(const ModuleTensors& module, const CodedScheme& scheme) {
  const TensorView& weights =
      module.get(".weight", {TensorType::F8_E4M3}, ModuleTensors::Shape{module.rows(), module.cols()});
  constexpr std::string_view kInverse = ".weight_scale_inv";  // some writers use it for tensors, too
  ScaleGrid scales(module, module.find(kInverse) ? kInverse : scheme.scale_ending, scheme, Sign::kNotNegative);
  CodedMatrix m;
  m.format.codes = Codes::kE4M3;
  m.format.scale = ScaleKind::kF32;
  m.format.group = scales.group();
  m.inputs = scheme.inputs;
  m.read_rows =
      each_row([scales, bytes = weights.bytes, label = TensorLabel(module, weights)](int row, const CodedRow& out) {
        copy_e4m3(bytes.subspan(static_cast<size_t>(row) * out.codes.size()), label, row, out.codes);
        scales.read(row, out.scales);
      });
  return m;
}

}  // namespace quire
