// AWQ, "gemm" layout: qweight [inputs, outputs / 8] and qzeros [groups, outputs / 8] have words of eight outputs in an
// order of their own; scales [groups, outputs]. Quark's int4 is the same with other names; its codes and zero points may
// be two's complement, or in the plain order.
#include <array>

#include "model/quantized/methods.h"
#include "model/quantized/scales.h"

namespace quire {
namespace {

using Shifts = std::array<int, 8>;  // where a word has its outputs
constexpr Shifts kReordered = {0, 16, 4, 20, 8, 24, 12, 28}, kInOrder = {0, 4, 8, 12, 16, 20, 24, 28};

constexpr size_t kBlock = 128;  // inputs taken apart at a time

struct AwqRows {
  std::span<const std::byte> weights, zeros;
  const TensorView* scales;
  TensorLabel scale_label;
  Shifts shifts;
  uint32_t sign;  // what makes codes unsigned
  size_t rows, cols, groups;

  void operator()(std::span<const int> numbers, std::span<const CodedRow> out) const {
    // Eight neighbours share the words of a block of inputs, which are far apart in the file.
    std::array<uint32_t, kBlock> words{};
    std::array<uint8_t, kBlock> codes;
    for (size_t first = 0; first < cols; first += kBlock) {
      const size_t count = std::min(kBlock, cols - first);
      for (size_t n = 0, column = SIZE_MAX; n < numbers.size(); ++n) {
        const auto row = static_cast<size_t>(numbers[n]);
        if (row / 8 != column) {
          column = row / 8;
          for (size_t k = 0; k < count; ++k) words[k] = load_at<uint32_t>(weights, (first + k) * (rows / 8) + column);
        }
        const int shift = shifts[row % 8];
        for (size_t k = 0; k < kBlock; ++k) codes[k] = static_cast<uint8_t>((words[k] >> shift & 15) ^ sign);
        std::memcpy(out[n].codes.data() + first, codes.data(), count);
      }
    }
    for (size_t g = 0; g < groups; ++g) {
      for (size_t n = 0; n < numbers.size(); ++n) {
        const auto row = static_cast<size_t>(numbers[n]);
        const uint32_t words_of_zeros = load_at<uint32_t>(zeros, g * (rows / 8) + row / 8);
        out[n].minima[g] = (words_of_zeros >> shifts[row % 8] & 15) ^ sign;
        const float scale = read_float(*scales, g * rows + row);
        check_scale(scale, Sign::kAny, scale_label, numbers[n]);
        out[n].scales[g] = std::bit_cast<uint32_t>(scale);
      }
    }
  }
};

}  // namespace

CodedMatrix open_awq(const ModuleTensors& module, const CodedScheme& scheme) {
  using Shape = ModuleTensors::Shape;
  const uint64_t rows = module.rows(), cols = module.cols();
  const int group = scheme.group > 0 ? scheme.group : whole_row(module.name().cols);
  const uint64_t groups = ceil_div(cols, static_cast<uint64_t>(group));
  const bool is_quark = scheme.form == CodedForm::kQuarkInt4;
  const std::string_view codes = is_quark ? ".weight" : ".qweight";
  if (rows % 8 != 0) {
    throw unsupported("{}: tensor {} has {} outputs, expected a multiple of 8", module.file(), module.get(codes).name,
                      rows);
  }
  const TensorView& weights = module.get(codes, {TensorType::I32}, Shape{cols, rows / 8});
  const TensorView& zeros =
      module.get(is_quark ? ".weight_zero_point" : ".qzeros", {TensorType::I32}, Shape{groups, rows / 8});
  const TensorView& scales = module.get(is_quark ? ".weight_scale" : ".scales", kFloatTypes, Shape{groups, rows});
  CodedMatrix m;
  m.format.codes = Codes::kU4;
  m.format.scale = ScaleKind::kF32;
  m.format.zeros = ZeroKind::kInteger;
  m.format.group = group;
  m.inputs = scheme.inputs;
  m.read_rows = AwqRows{.weights = weights.bytes,
                        .zeros = zeros.bytes,
                        .scales = &scales,
                        .scale_label = TensorLabel(module, scales),
                        .shifts = is_quark && !scheme.reordered ? kInOrder : kReordered,
                        .sign = is_quark && scheme.signed_codes ? 8u : 0u,
                        .rows = rows,
                        .cols = cols,
                        .groups = groups};
  return m;
}

}  // namespace quire
