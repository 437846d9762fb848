// E2M1 codes in pairs, the first in the low half of a byte: NVFP4 and MXFP4 of compressed-tensors, MXFP4 of gpt-oss.
#include <array>
#include <cmath>

#include "model/quantized/bit_fields.h"
#include "model/quantized/methods.h"
#include "model/quantized/scales.h"

namespace quire {
namespace {

// What all scales of the matrix are multiplied with. compressed-tensors divides by its tensor; ModelOpt multiplies.
float read_factor(const ModuleTensors& module, bool is_factor) {
  const TensorView& tensor = module.get(is_factor ? ".weight_scale_2" : ".weight_global_scale", {TensorType::F32},
                                        {ModuleTensors::Shape{1}, ModuleTensors::Shape{}});
  const float scale = read_float(tensor, 0);
  if (!(std::isfinite(scale) && scale > 0 && std::isfinite(1 / scale)))
    throw module.error(tensor, "is {}, expected a positive number", scale);
  return is_factor ? scale : 1 / scale;
}

}  // namespace

CodedMatrix open_fp4(const ModuleTensors& module, const CodedScheme& scheme) {
  using Shape = ModuleTensors::Shape;
  // ModelOpt calls the codes ".weight".
  const std::string_view packed = module.find(".weight_packed") ? ".weight_packed" : ".weight";
  const bool is_nvfp4 = scheme.form == CodedForm::kNvfp4;
  const int group = is_nvfp4 ? group_by_shape(module, ".weight_scale", scheme.group) : 32;
  const uint64_t rows = module.rows(), cols = module.cols(), groups = ceil_div(cols, static_cast<uint64_t>(group)),
                 row_bytes = ceil_div(cols, 2);
  const bool is_stack = scheme.form == CodedForm::kMxfp4Blocks;
  if (is_stack && cols % static_cast<uint64_t>(group) != 0)
    throw unsupported("{}: tensor {} has rows of {} inputs, expected a multiple of 32", module.file(),
                      module.get("_blocks").name, cols);
  const auto items = static_cast<uint64_t>(module.name().items), item = static_cast<uint64_t>(module.name().item);
  const TensorView& codes = is_stack ? module.get("_blocks", {TensorType::U8}, Shape{items, rows, groups, 16})
                                     : module.get(packed, {TensorType::U8}, Shape{rows, row_bytes});
  // The stored type of E8M0 is U8 in files of older libraries.
  const TensorView& scales =
      is_stack   ? module.get("_scales", {TensorType::U8}, Shape{items, rows, groups})
      : is_nvfp4 ? module.get(".weight_scale", {TensorType::F8_E4M3}, Shape{rows, groups})
                 : module.get(".weight_scale", {TensorType::U8, TensorType::F8_E8M0}, Shape{rows, groups});

  CodedMatrix m;
  m.format.codes = Codes::kTable4;
  m.format.scale = is_nvfp4 ? ScaleKind::kE4M3 : ScaleKind::kE8M0;
  m.format.group = group;
  m.format.table = kDoubledE2M1;
  m.inputs = scheme.inputs;
  if (is_nvfp4) m.factor = 0.5f * read_factor(module, packed == ".weight");
  const uint8_t largest = is_nvfp4 ? kLargestE4M3 : kLargestE8M0;
  const size_t before = static_cast<size_t>(item * rows);  // rows of the stack
  m.read_rows = each_row([=, codes = codes.bytes, scales = scales.bytes, label = TensorLabel(module, scales)](
                             int row, const CodedRow& out) {
    const size_t at = before + static_cast<size_t>(row);
    unpack_nibbles<FirstNibble::kLow>(codes.data() + at * row_bytes, cols, out.codes.data());
    for (size_t g = 0; g < groups; ++g) {
      const auto scale = load_at<uint8_t>(scales, at * groups + g);
      if (scale > largest) throw label.damaged("scale code", scale, row);
      out.scales[g] = scale;
    }
  });
  return m;
}

}  // namespace quire
