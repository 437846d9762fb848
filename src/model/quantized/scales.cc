#include "model/quantized/scales.h"

#include "base/half.h"

namespace quire {
namespace {

constexpr std::initializer_list<TensorType> kTypes = {TensorType::F32, TensorType::F16, TensorType::BF16,
                                                      TensorType::F8_E8M0};
constexpr std::initializer_list<TensorType> kExponents = {TensorType::U8, TensorType::F8_E8M0};

// The shapes of scales of blocks.
std::vector<ModuleTensors::Shape> block_shapes(uint64_t rows, uint64_t cols, bool squeezed) {
  std::vector<ModuleTensors::Shape> shapes = {{rows, cols}};
  if (!squeezed) return shapes;
  shapes.push_back({rows, 1, cols, 1});
  ModuleTensors::Shape least;
  for (const uint64_t size : {rows, cols}) {
    if (size > 1) least.push_back(size);
  }
  shapes.push_back(least);
  return shapes;
}

}  // namespace

float read_float(const TensorView& tensor, size_t index) {
  switch (tensor.type) {
    case TensorType::F16:
      return f16_to_f32(load_at<uint16_t>(tensor.bytes, index));
    case TensorType::BF16:
      return bf16_to_f32(load_at<uint16_t>(tensor.bytes, index));
    case TensorType::U8:         // as some writers call it
    case TensorType::F8_E8M0: {  // 2^(e - 127); 255 is NaN
      const auto e = load_at<uint8_t>(tensor.bytes, index);
      return std::bit_cast<float>(e == 0 ? 0x00400000u : e == 255 ? 0x7fc00000u : uint32_t{e} << 23);
    }
    default:
      return load_at<float>(tensor.bytes, index);
  }
}

ScaleGrid::ScaleGrid(const ModuleTensors& module, std::string_view ending, const CodedScheme& scheme, Sign sign)
    : tensor_(&module.get(ending)), label_(module, *tensor_), sign_(sign), group_(whole_row(module.name().cols)) {
  using Scales = CodedScheme::Scales;
  using Shape = ModuleTensors::Shape;
  const uint64_t rows = module.rows();
  const auto groups = [&] { return ceil_div(module.cols(), static_cast<uint64_t>(group_)); };
  if (scheme.scales == Scales::kBlock) {
    group_ = scheme.col_block;
    row_block_ = scheme.row_block;
    width_ = groups();
    module.get(ending, kTypes,
               block_shapes(ceil_div(rows, static_cast<uint64_t>(row_block_)), width_, scheme.squeezed));
  } else if (scheme.scales == Scales::kGroup) {
    if (scheme.group > 0) group_ = scheme.group;
    width_ = groups();
    module.get(ending, scheme.form == CodedForm::kMxfp8 ? kExponents : kTypes, Shape{rows, width_});
  } else if (scheme.scales == Scales::kChannel) {
    module.get(ending, kTypes, {Shape{rows, 1}, Shape{rows}});
  } else {
    module.get(ending, kTypes, {Shape{1}, Shape{}, Shape{1, 1}, Shape{rows, 1}, Shape{rows}});
    const bool one = tensor_->bytes.size() == info(tensor_->type).block_bytes;
    if (one) row_block_ = module.name().rows;
  }
}

}  // namespace quire
