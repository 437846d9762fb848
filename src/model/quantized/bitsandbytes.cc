// bitsandbytes NF4 and FP4: the matrix in row-major order, two codes in a byte, the first in the high half. Every
// `blocksize` codes have a greatest magnitude (absmax), which double quantization stores as a byte with two levels of
// its own.
#include <array>
#include <cmath>
#include <optional>

#include "json/field.h"
#include "model/quantized/bit_fields.h"
#include "model/quantized/methods.h"
#include "model/quantized/scales.h"

namespace quire {
namespace {

constexpr int64_t kLargestBlock = 1 << 20;

// The JSON text in NAME.weight.quant_state.bitsandbytes__nf4.
struct QuantState {
  size_t block = 64;
  size_t nested_block = 0;  // 0: absmax is not quantized
  float nested_offset = 0;
};

QuantState read_state(const ModuleTensors& module) {
  const TensorView* tensor = nullptr;
  std::string_view kind;
  for (const std::string_view k : {"nf4", "fp4"}) {
    if (tensor) break;
    tensor = module.find(".weight.quant_state.bitsandbytes__" + std::string(k));
    kind = k;
  }
  if (!tensor) {
    throw invalid(
        "{}: tensor {}.weight.quant_state.bitsandbytes__nf4 (or __fp4) is missing; the quantized module {} needs it",
        module.file(), module.name().module, module.name().module);
  }
  if (tensor->type != TensorType::U8) throw module.error(*tensor, "has type {}, expected U8", name(tensor->type));
  const std::string text(reinterpret_cast<const char*>(tensor->bytes.data()), tensor->bytes.size());
  const JsonField json = JsonField::parse(text, fmt::format("{}: tensor {}", module.file(), tensor->name)).object();
  if (json.get<std::string>("quant_type") != kind)
    throw json.at("quant_type").error("expected {}, found {}", kind, describe(json.at("quant_type").json()));
  const auto shape = json.get<std::vector<int64_t>>("shape");
  if (shape != std::vector<int64_t>{module.name().rows, module.name().cols}) {
    throw json.at("shape").error("expected [{}, {}], found [{}]", module.rows(), module.cols(), fmt::join(shape, ", "));
  }
  QuantState state;
  state.block = static_cast<size_t>(json.at("blocksize").integer(2, kLargestBlock));
  if (!json.has("nested_blocksize")) return state;
  state.nested_block = static_cast<size_t>(json.at("nested_blocksize").integer(1, kLargestBlock));
  state.nested_offset = json.get<float>("nested_offset");
  return state;
}

// The greatest magnitude of each block.
class Magnitudes {
 public:
  Magnitudes(const ModuleTensors& module, const QuantState& state, uint64_t blocks) : state_(state) {
    using Shape = ModuleTensors::Shape;
    const bool nested = state.nested_block > 0;
    absmax_ = &module.get(".weight.absmax", {nested ? TensorType::U8 : TensorType::F32}, Shape{blocks});
    label_.emplace(module, *absmax_);
    if (!nested) return;
    nested_ = &module.get(".weight.nested_absmax", {TensorType::F32}, Shape{ceil_div(blocks, state.nested_block)});
    map_ = &module.get(".weight.nested_quant_map", {TensorType::F32}, Shape{256});
  }

  float of(size_t block, int row) const {
    if (!nested_) {
      const auto value = load_at<float>(absmax_->bytes, block);
      check_scale(value, Sign::kNotNegative, *label_, row);
      return value;
    }
    // Rounding can make those of tiny blocks negative.
    const float value = load_at<float>(map_->bytes, load_at<uint8_t>(absmax_->bytes, block)) *
                            load_at<float>(nested_->bytes, block / state_.nested_block) +
                        state_.nested_offset;
    check_scale(value, Sign::kAny, *label_, row);
    return value;
  }

 private:
  QuantState state_;
  const TensorView *absmax_ = nullptr, *nested_ = nullptr, *map_ = nullptr;
  std::optional<TensorLabel> label_;
};

uint8_t code_at(std::span<const std::byte> codes, size_t i) {
  const auto pair = load_at<uint8_t>(codes, i / 2);
  return i % 2 == 0 ? pair >> 4 : pair & 15;
}

// Blocks that are no groups of a PanelFormat: the weights themselves.
auto read_numbers(const Magnitudes& magnitudes, const QuantState& state, const std::array<float, 16>& table,
                  std::span<const std::byte> codes, size_t cols) {
  return each_row([=](int row, const CodedRow& out) {
    for (size_t k = 0; k < cols;) {
      const size_t first = static_cast<size_t>(row) * cols, block = (first + k) / state.block;
      const float magnitude = magnitudes.of(block, row);
      for (const size_t end = std::min(cols, (block + 1) * state.block - first); k < end; ++k) {
        const float weight = table[code_at(codes, first + k)] * magnitude;
        std::memcpy(out.codes.data() + k * sizeof weight, &weight, sizeof weight);
      }
    }
  });
}

}  // namespace

CodedMatrix open_bnb4(const ModuleTensors& module, const CodedScheme& scheme) {
  using Shape = ModuleTensors::Shape;
  const size_t rows = module.rows(), cols = module.cols(), bytes = ceil_div(rows * cols, 2);
  const QuantState state = read_state(module);
  const TensorView& weights = module.get(".weight");
  // bnb_4bit_quant_storage: the same bytes may be called something else.
  if (weights.bytes.size() != bytes)
    throw module.error(weights, "has {} bytes, expected {} for {} weights of 4 bits", weights.bytes.size(), bytes,
                       rows * cols);
  const TensorView& map = module.get(".weight.quant_map", {TensorType::F32}, Shape{16});
  const Magnitudes magnitudes(module, state, ceil_div(rows * cols, state.block));
  std::array<float, 16> table;
  for (size_t i = 0; i < table.size(); ++i) {
    table[i] = load_at<float>(map.bytes, i);
    if (!std::isfinite(table[i]))
      throw module.error(map, "has the value {} at index {}; the file is damaged", table[i], i);
  }

  CodedMatrix m;
  m.inputs = scheme.inputs;
  const bool has_groups = cols % state.block == 0 && (state.block == 16 || state.block % 32 == 0);
  if (!has_groups) {
    m.format.codes = Codes::kF32;
    m.read_rows = read_numbers(magnitudes, state, table, weights.bytes, cols);
    return m;
  }
  m.format.codes = Codes::kFloat4;
  m.format.scale = ScaleKind::kF32;
  m.format.group = static_cast<int>(state.block);
  m.format.table = table;
  m.read_rows = each_row([=, codes = weights.bytes](int row, const CodedRow& out) {
    const size_t n = static_cast<size_t>(row), groups = cols / state.block;
    unpack_nibbles<FirstNibble::kHigh>(codes.data() + n * cols / 2, cols, out.codes.data());  // cols is even
    for (size_t g = 0; g < groups; ++g) out.scales[g] = std::bit_cast<uint32_t>(magnitudes.of(n * groups + g, row));
  });
  return m;
}

}  // namespace quire
