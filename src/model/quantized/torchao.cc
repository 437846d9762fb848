// torchao: a tensor subclass NAME.weight is stored as NAME._weight_qdata, NAME._weight_scale and so on. The type and shape
// of qdata tell which subclass it is.
#include <algorithm>
#include <optional>

#include "model/quantized/bit_fields.h"
#include "model/quantized/config_values.h"
#include "model/quantized/methods.h"
#include "model/quantized/scales.h"

namespace quire {
namespace {

constexpr std::string_view kTorchao = "torchao";
constexpr std::string_view kData = "._weight_qdata", kScale = "._weight_scale", kZero = "._weight_zero_point",
                           kScaleAndZero = "._weight_scale_and_zero";
using Shape = ModuleTensors::Shape;

// Inputs under a scale, if a row has `count` of them.
int group_of(const ModuleTensors& module, const TensorView& scales, uint64_t count) {
  if (count == 1) return whole_row(module.name().cols);
  const uint64_t size = count > 0 && module.cols() % count == 0 ? module.cols() / count : 0;
  if (size != 16 && (size == 0 || size % 32 != 0))
    throw module.error(scales, "has shape {}: {} inputs need groups of 16, or of a multiple of 32",
                       shape_text(scales.shape), module.cols());
  return static_cast<int>(size);
}

// Scales [outputs, groups], one for each block of outputs and inputs, or one for all.
struct RowScales {
  const TensorView* tensor;
  TensorLabel label;
  int group;
  size_t width, rows_under;

  size_t first_of(int row) const { return static_cast<size_t>(row) / rows_under * width; }
  void read(int row, std::span<uint32_t> scales) const {
    for (size_t g = 0; g < width; ++g) {
      const float scale = read_float(*tensor, first_of(row) + g);
      check_scale(scale, Sign::kAny, label, row);
      scales[g] = std::bit_cast<uint32_t>(scale);
    }
  }
};

RowScales row_scales(const ModuleTensors& module) {
  const TensorView& scales = module.get(kScale);
  const Shape& shape = scales.shape;
  const bool is_one = shape.empty() || shape == Shape{1} || shape == Shape{1, 1};
  const uint64_t width = is_one ? 1 : shape.back(), blocks = is_one ? 1 : shape.front();
  const uint64_t rows_under = blocks > 0 && module.rows() % blocks == 0 ? module.rows() / blocks : 1;
  module.get(kScale, kFloatTypes, is_one ? shape : Shape{module.rows() / rows_under, width});
  return {&scales, TensorLabel(module, scales), group_of(module, scales, width), width, rows_under};
}

// Int8Tensor, and IntxUnpackedToInt8Tensor, which has fewer bits in as many bytes.
CodedMatrix open_bytes(const ModuleTensors& module, const CodedScheme& scheme, const TensorView& data) {
  module.get(kData, {TensorType::I8}, Shape{module.rows(), module.cols()});
  const RowScales scales = row_scales(module);
  std::span<const std::byte> zeros;
  if (module.find(kZero)) {
    zeros = module.get(kZero, {TensorType::I8}, scales.tensor->shape).bytes;
    if (std::ranges::all_of(zeros, [](std::byte zero) { return zero == std::byte{0}; })) zeros = {};
  }
  CodedMatrix m;
  m.format.codes = Codes::kI8;
  m.format.scale = ScaleKind::kF32;
  m.format.zeros = zeros.empty() ? ZeroKind::kConstant : ZeroKind::kInteger;
  m.format.group = scales.group;
  m.inputs = scheme.inputs;
  m.read_rows = each_row([=, bytes = data.bytes](int row, const CodedRow& out) {
    const size_t cols = out.codes.size();
    std::memcpy(out.codes.data(), bytes.data() + static_cast<size_t>(row) * cols, cols);
    scales.read(row, out.scales);
    for (size_t g = 0; g < out.minima.size(); ++g) out.minima[g] = load_at<uint8_t>(zeros, scales.first_of(row) + g);
  });
  return m;
}

// Float8Tensor.
CodedMatrix open_floats(const ModuleTensors& module, const TensorView& data) {
  module.get(kData, {TensorType::F8_E4M3}, Shape{module.rows(), module.cols()});
  const RowScales scales = row_scales(module);
  CodedMatrix m;
  m.format.codes = Codes::kE4M3;
  m.format.scale = ScaleKind::kF32;
  m.format.group = scales.group;
  m.read_rows = each_row([=, bytes = data.bytes, label = TensorLabel(module, data)](int row, const CodedRow& out) {
    copy_e4m3(bytes.subspan(static_cast<size_t>(row) * out.codes.size()), label, row, out.codes);
    scales.read(row, out.scales);
  });
  return m;
}

// One scale and one zero for a group of an output. The tensors' last dimensions are [groups, outputs], maybe of more than
// the matrix has.
struct GroupedZeros {
  const TensorView *scales, *zeros;
  TensorLabel scale_label, zero_label;
  size_t group_stride, row_stride, zero_offset;

  float scale(size_t group, int row) const {
    const float value = read_float(*scales, group * group_stride + static_cast<size_t>(row) * row_stride);
    check_scale(value, Sign::kAny, scale_label, row);
    return value;
  }
  float zero(size_t group, int row) const {
    const size_t at = group * group_stride + static_cast<size_t>(row) * row_stride + zero_offset;
    if (zeros->type == TensorType::I8) return load_at<int8_t>(zeros->bytes, at);
    const float value = read_float(*zeros, at);
    if (!std::isfinite(value)) throw zero_label.damaged("zero point", value, row);
    return value;
  }
};

CodedMatrix affine_int4(const GroupedZeros& numbers, int group, size_t groups,
                        std::function<void(int row, std::span<uint8_t> codes)> read_codes) {
  CodedMatrix m;
  m.format.codes = Codes::kU4;
  m.format.scale = ScaleKind::kF32;
  m.format.zeros = numbers.zeros->type == TensorType::I8 ? ZeroKind::kInteger : ZeroKind::kF32;
  m.format.group = group;
  m.read_rows = each_row([=, read = std::move(read_codes)](int row, const CodedRow& out) {
    read(row, out.codes);
    for (size_t g = 0; g < groups; ++g) {
      const float scale = numbers.scale(g, row), zero = numbers.zero(g, row);
      out.scales[g] = std::bit_cast<uint32_t>(scale);
      // A float is the weight of code 8.
      out.minima[g] = numbers.zeros->type == TensorType::I8 ? static_cast<uint8_t>(static_cast<int8_t>(zero))
                                                            : std::bit_cast<uint32_t>(std::fma(-8.0f, scale, zero));
    }
  });
  return m;
}

// Int4Tensor: pairs of two's complement. Int4PlainInt32Tensor: words of unsigned codes, with zero points of int8.
CodedMatrix open_nibbles(const ModuleTensors& module, const TensorView& data) {
  const size_t rows = module.rows(), cols = module.cols();
  const bool is_signed = data.type != TensorType::I32;
  if (is_signed)
    module.get(kData, {TensorType::U8, TensorType::I8}, Shape{rows, ceil_div(cols, 2)});
  else
    module.get(kData, {TensorType::I32}, Shape{rows, ceil_div(cols, 8)});
  const TensorView& scales = module.get(kScale);
  const uint64_t count = scales.shape.size() == 2 ? scales.shape[0] : 0;
  const int group = group_of(module, scales, count);
  module.get(kScale, kFloatTypes, Shape{count, rows});
  const TensorView& zeros = is_signed ? module.get(kZero, kFloatTypes, Shape{count, rows})
                                      : module.get(kZero, {TensorType::I8}, Shape{count, rows});
  const GroupedZeros numbers{&scales, &zeros, {module, scales}, {module, zeros}, rows, 1, 0};
  const size_t row_bytes = data.bytes.size() / rows;
  return affine_int4(numbers, group, count, [=, bytes = data.bytes](int row, std::span<uint8_t> codes) {
    unpack_nibbles<FirstNibble::kLow>(bytes.data() + static_cast<size_t>(row) * row_bytes, codes.size(), codes.data());
    if (!is_signed) return;
    for (uint8_t& code : codes) code ^= 8;
  });
}

// Int4TilePackedTo4dTensor, for tensor cores: [outputs / 8, inputs / (16 * tiles), 32, tiles / 2] of words. Lane t of a
// word holds output t / 4 and, of two tiles of 16 inputs, inputs 2 (t % 4) + {0, 1, 8, 9} each. Inputs are padded to a
// multiple of 1024.
struct TilePacked {
  std::span<const std::byte> words;
  size_t outer, halves;  // the second and the last dimension

  void operator()(int row, std::span<uint8_t> codes) const {
    constexpr std::array<size_t, 8> kInput = {0, 8, 16, 24,
                                              1, 9, 17, 25};  // which inputs a word's nibbles are, the lowest first
    const auto n = static_cast<size_t>(row);
    for (size_t first = 0; first < codes.size(); first += 32) {
      const size_t tile = first / 32, at = ((n / 8 * outer + tile / halves) * 32 + n % 8 * 4) * halves + tile % halves;
      for (size_t lane = 0; lane < 4; ++lane) {
        const auto word = load_at<uint32_t>(words, at + lane * halves);
        for (size_t j = 0; j < kInput.size(); ++j) {
          const size_t i = first + 2 * lane + kInput[j];
          if (i < codes.size()) codes[i] = static_cast<uint8_t>(word >> 4 * j & 15);
        }
      }
    }
  }
};

CodedMatrix open_tiles(const ModuleTensors& module, const TensorView& data) {
  const uint64_t rows = module.rows(), cols = module.cols(), halves = data.shape[3];
  const bool is_known = halves == 1 || halves == 2 || halves == 4;
  const uint64_t outer = data.shape[1], padded = outer * halves * 32;
  if (!is_known || outer > cols || padded < cols)
    throw module.error(data, "has shape {}, which does not hold {} inputs in tiles of 16", shape_text(data.shape),
                       cols);
  module.get(kData, {TensorType::I32}, Shape{data.shape[0], outer, 32, halves});
  if (data.shape[0] * 8 < rows || data.shape[0] > rows)
    throw module.error(data, "has shape {}, which does not hold {} outputs in tiles of 8", shape_text(data.shape),
                       rows);
  const TensorView& both = module.get(kScaleAndZero);
  const uint64_t count = both.shape.size() == 3 ? both.shape[0] : 0, size = count > 0 ? padded / count : 0;
  if (size < 32 || size % 32 != 0 || size * count != padded)
    throw module.error(both, "has shape {}: {} inputs need groups of a multiple of 32", shape_text(both.shape), padded);
  module.get(kScaleAndZero, kFloatTypes, Shape{count, data.shape[0] * 8, 2});
  const GroupedZeros numbers{&both, &both, {module, both}, {module, both}, data.shape[0] * 16, 2, 1};
  return affine_int4(numbers, static_cast<int>(size), ceil_div(cols, size), TilePacked{data.bytes, outer, halves});
}

void check_torchao_type(const JsonField& type, Quantization& to) {
  static constexpr std::string_view kRead[] = {"Int4WeightOnlyConfig",
                                               "Int8WeightOnlyConfig",
                                               "Int8DynamicActivationInt8WeightConfig",
                                               "IntxWeightOnlyConfig",
                                               "Int8DynamicActivationIntxWeightConfig",
                                               "Float8WeightOnlyConfig",
                                               "Float8DynamicActivationFloat8WeightConfig",
                                               "Float8DynamicActivationInt4WeightConfig",
                                               "AOPerModuleConfig",
                                               "ModuleFqnToConfig",
                                               "FqnToConfig"};
  const std::string name = type.object().get<std::string>("_type");
  if (std::ranges::find(kRead, name) == std::end(kRead))
    throw not_supported(type.at("_type"), kTorchao, "use " + one_of(kRead));
  CodedScheme scheme;
  scheme.form = CodedForm::kTorchao;
  scheme.bits = 8;
  if (name == "Int8DynamicActivationInt8WeightConfig") scheme.inputs.kind = InputCodes::Kind::kPerToken;
  use_for_all(scheme, to);
}

}  // namespace

void read_torchao(const JsonField& config, Quantization& to) {
  const JsonField type = config.at("quant_type");
  check_names(config, "modules_to_not_convert");
  // Older versions wrote a name, and pickled files instead of safetensors.
  if (type.json().is_string()) throw not_supported(type, kTorchao, "save the model again with torchao 0.15 or later");
  check_torchao_type(type.object().at("default"), to);
}

CodedMatrix open_torchao(const ModuleTensors& module, const CodedScheme& scheme) {
  const TensorView& data = module.get(kData);
  const bool is_matrix = data.shape.size() == 2;
  if (data.type == TensorType::I32 && data.shape.size() == 4) return open_tiles(module, data);
  if (!is_matrix) throw module.error(data, "has shape {}, expected 2 or 4 dimensions", shape_text(data.shape));
  if (data.type == TensorType::F8_E4M3) return open_floats(module, data);
  const bool is_halved = data.shape[1] != module.cols();
  if (data.type == TensorType::U8 || data.type == TensorType::I32 || (data.type == TensorType::I8 && is_halved))
    return open_nibbles(module, data);
  return open_bytes(module, scheme, data);
}

}  // namespace quire
