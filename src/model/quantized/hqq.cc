// HQQ: a module's tensors repeat its settings (nbits, group_size, axis, shape). The matrix is cut into groups, which are the
// rows (axis 1) or the columns (axis 0) of a matrix of its own; that one is cut into equal parts along its rows, and a
// number of W_q has one code of each part, the first in the high bits. weight = (code - zero) * scale.
#include <algorithm>

#include "model/quantized/bit_fields.h"
#include "model/quantized/config_values.h"
#include "model/quantized/methods.h"
#include "model/quantized/scales.h"

namespace quire {
namespace {

constexpr std::string_view kHqqMethod = "hqq";
constexpr size_t kMostTags = 1 << 16;
constexpr int64_t kMostGroup = 1 << 20;

int64_t integer_of(const ModuleTensors& module, std::string_view ending, int64_t low, int64_t high) {
  const TensorView& tensor =
      module.get(ending, {TensorType::I32, TensorType::I64, TensorType::U8}, {ModuleTensors::Shape{}, {1}});
  const int64_t value = tensor.type == TensorType::I32   ? load_at<int32_t>(tensor.bytes, 0)
                        : tensor.type == TensorType::I64 ? load_at<int64_t>(tensor.bytes, 0)
                                                         : load_at<uint8_t>(tensor.bytes, 0);
  if (value < low || value > high) throw module.error(tensor, "is {}, expected {} to {}", value, low, high);
  return value;
}

void refuse_if_set(const ModuleTensors& module, std::string_view ending, std::string_view what) {
  if (module.find(ending) && integer_of(module, ending, 0, 1) != 0)
    throw unsupported("{}: tensor {} is 1: Quire cannot read {}", module.file(), module.get(ending).name, what);
}

// How the codes lie.
struct HqqLayout {
  const TensorView *codes, *scales, *zeros;
  TensorLabel scale_label, zero_label;
  int bits;
  size_t group, axis, cols;
  size_t parts, step, width;  // W_q's: codes in a number, rows, columns

  uint8_t code(size_t row, size_t column) const {  // in the matrix of groups
    const size_t part = row / step, at = row % step * width + column;
    if (bits == 3) return static_cast<uint8_t>(load_at<uint32_t>(codes->bytes, at) >> (27 - 3 * part) & 7);
    const auto byte = load_at<uint8_t>(codes->bytes, at);
    return static_cast<uint8_t>(byte >> (8 - static_cast<size_t>(bits) * (part + 1)) & ((1u << bits) - 1));
  }
  float scale(size_t of_group, int row) const {
    const float value = read_float(*scales, of_group);
    check_scale(value, Sign::kAny, scale_label, row);
    return value;
  }
  float zero(size_t of_group, int row) const {
    const float value = read_float(*zeros, of_group);
    if (!std::isfinite(value)) throw zero_label.damaged("zero point", value, row);
    return value;
  }
};

void check_hqq_shape(const ModuleTensors& module) {
  const TensorView& shape = module.get(".shape", {TensorType::I64, TensorType::I32}, ModuleTensors::Shape{2});
  const auto at = [&](size_t i) {
    return shape.type == TensorType::I64 ? load_at<int64_t>(shape.bytes, i) : load_at<int32_t>(shape.bytes, i);
  };
  if (at(0) != module.name().rows || at(1) != module.name().cols)
    throw module.error(shape, "is [{}, {}], expected [{}, {}]", at(0), at(1), module.rows(), module.cols());
}

HqqLayout read_layout(const ModuleTensors& module) {
  using Shape = ModuleTensors::Shape;
  check_hqq_shape(module);
  const auto bits = static_cast<int>(integer_of(module, ".nbits", 1, 8));
  if (bits > 4 && bits != 8) throw module.error(module.get(".nbits"), "is {}, expected 1, 2, 3, 4 or 8", bits);
  const auto axis = static_cast<size_t>(integer_of(module, ".axis", 0, 1));
  const size_t rows = module.rows(), cols = module.cols();
  const size_t group = module.find(".group_size")
                           ? static_cast<size_t>(integer_of(module, ".group_size", 1, kMostGroup))
                       : axis == 1 ? cols
                                   : rows;
  if (rows * cols % group != 0)
    throw module.error(module.get(".group_size"), "is {}, which does not divide the {} weights", group, rows * cols);
  refuse_if_set(module, ".view_as_float", "codes that are stored as floats");
  refuse_if_set(module, ".quant_scale", "scales that are quantized themselves");
  refuse_if_set(module, ".quant_zero", "zero points that are quantized themselves");
  // What repeats the above, or is the library's business.
  for (const char* unread : {".packing", ".unpack_view_dtype", ".compute_dtype", ".offload_meta", ".encoded_state_dict",
                             ".stores_quant_config", ".channel_wise", ".optimize", ".round_zero"})
    module.find(unread);
  const size_t groups = rows * cols / group, tall = axis == 1 ? groups : group, wide = axis == 1 ? group : groups,
               parts = bits == 3 ? 10 : 8 / static_cast<size_t>(bits);
  if (bits != 3 && tall % parts != 0)
    throw module.error(module.get(".W_q"), "holds {} codes in a byte, which do not divide the {} of a column", parts,
                       tall);
  const Shape of_groups = axis == 1 ? Shape{groups, 1} : Shape{1, groups};
  HqqLayout layout{
      .codes = &module.get(".W_q", {bits == 3 ? TensorType::I32 : TensorType::U8}, Shape{ceil_div(tall, parts), wide}),
      .scales = &module.get(".scale", kFloatTypes, of_groups),
      .zeros = &module.get(".zero", kFloatTypes, of_groups),
      .scale_label = {module, module.get(".scale")},
      .zero_label = {module, module.get(".zero")},
      .bits = bits,
      .group = group,
      .axis = axis,
      .cols = cols,
      .parts = parts,
      .step = ceil_div(tall, parts),
      .width = wide};
  return layout;
}

// Groups that lie in rows of the matrix.
CodedMatrix coded_groups(const HqqLayout& layout) {
  CodedMatrix m;
  constexpr Codes kOfBits[] = {Codes::kU2, Codes::kU2, Codes::kU3, Codes::kU4};
  m.format.codes = layout.bits == 8 ? Codes::kI8 : kOfBits[layout.bits - 1];
  m.format.scale = ScaleKind::kF32;
  m.format.zeros = ZeroKind::kF32;
  m.format.group = static_cast<int>(layout.group);
  m.read_rows = each_row([layout](int row, const CodedRow& out) {
    const size_t groups = layout.cols / layout.group, first = static_cast<size_t>(row) * groups;
    const int offset = layout.bits == 8 ? 128 : 0;  // codes of 8 bits are kept as signed ones
    for (size_t g = 0; g < groups; ++g) {
      const auto codes = out.codes.subspan(g * layout.group, layout.group);
      for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint8_t>(layout.code(first + g, i) - offset);
      const float scale = layout.scale(first + g, row), zero = layout.zero(first + g, row);
      out.scales[g] = std::bit_cast<uint32_t>(scale);
      out.minima[g] = std::bit_cast<uint32_t>((static_cast<float>(offset) - zero) * scale);
    }
  });
  return m;
}

// Groups that are no groups of a PanelFormat: the weights themselves.
CodedMatrix group_numbers(const HqqLayout& layout) {
  CodedMatrix m;
  m.format.codes = Codes::kF32;
  m.read_rows = each_row([layout](int row, const CodedRow& out) {
    for (size_t k = 0; k < layout.cols; ++k) {
      const size_t at = static_cast<size_t>(row) * layout.cols + k, r = at / layout.width, c = at % layout.width;
      const size_t of_group = layout.axis == 1 ? r : c;
      const float weight =
          (static_cast<float>(layout.code(r, c)) - layout.zero(of_group, row)) * layout.scale(of_group, row);
      std::memcpy(out.codes.data() + k * sizeof weight, &weight, sizeof weight);
    }
  });
  return m;
}

}  // namespace

void read_hqq(const JsonField& config, Quantization& to) {
  check_names(config, "skip_modules");
  const JsonField settings = config.at("quant_config").object();
  const auto check = [](const JsonField& of_weights) {
    read_choice(of_weights.object().at("weight_quant_params").object(), "nbits", kHqqMethod, {1, 2, 3, 4, 8});
  };
  // For all modules, or for each kind of them.
  if (settings.has("weight_quant_params")) {
    check(settings);
  } else {
    const auto members = settings.members();
    if (members.size() > kMostTags) throw settings.error("has too many members");
    for (const auto& [tag, own] : members) {
      if (!own.json().is_null()) check(own);
    }
  }
  CodedScheme scheme;
  scheme.form = CodedForm::kHqq;
  scheme.bits = 8;  // at most; each module says how many
  use_for_all(scheme, to);
}

CodedMatrix open_hqq(const ModuleTensors& module, const CodedScheme&) {
  const HqqLayout layout = read_layout(module);
  const bool has_groups =
      layout.axis == 1 && layout.cols % layout.group == 0 && (layout.group == 16 || layout.group % 32 == 0);
  return has_groups ? coded_groups(layout) : group_numbers(layout);
}

}  // namespace quire
