#include "quant/gguf_blocks.h"

#include <array>
#include <cassert>

#include "quant/block_type.h"

namespace quire {
namespace {

constexpr BlockType kFloats[] = {
    {TensorType::F32, {.codes = Codes::kF32}, nullptr},
    {TensorType::F16, {.codes = Codes::kF16}, nullptr},
    {TensorType::BF16, {.codes = Codes::kBf16}, nullptr},
};

// Null: the type has no format.
const BlockType* find(TensorType type) {
  static const auto by_type = [] {
    std::array<const BlockType*, static_cast<size_t>(TensorType::Q2_0) + 1> rows{};
    for (const auto types :
         {std::span<const BlockType>(kFloats), flat_block_types(), k_block_types(), grid_block_types()}) {
      for (const BlockType& t : types) rows[static_cast<size_t>(t.type)] = &t;
    }
    return rows;
  }();
  const auto index = static_cast<size_t>(type);
  return index < by_type.size() ? by_type[index] : nullptr;
}

const BlockType& block_type(TensorType type) {
  const BlockType* found = find(type);
  assert(found);
  return *found;
}

// Whether the parts of a row are as many as the format has.
[[maybe_unused]] bool has_the_size_of(const CodedRow& row, const PanelFormat& format) {
  const auto divided = [&](size_t by) { return (row.codes.size() + by - 1) / by; };
  const size_t groups = divided(static_cast<size_t>(format.group)), supers = divided(kSuperInputs);
  return row.scales.size() == groups && row.minima.size() == (has_minima(format) ? groups : 0) &&
         row.supers.size() == (format.scale == ScaleKind::kSuper ? supers : 0) &&
         row.super_minima.size() == (format.zeros == ZeroKind::kSuper ? supers : 0);
}

}  // namespace

bool has_panel_format(TensorType type) { return find(type) != nullptr; }
const PanelFormat& panel_format(TensorType type) { return block_type(type).format; }
float panel_factor(TensorType type) { return block_type(type).factor; }

void read_row(TensorType type, const std::byte* row, const CodedRow& out) {
  const BlockType& blocks = block_type(type);
  assert(blocks.read && out.codes.size() % info(type).block_elements == 0 && has_the_size_of(out, blocks.format));
  blocks.read(blocks, reinterpret_cast<const uint8_t*>(row), out);
}

bool has_writer(TensorType type) { return block_type(type).write != nullptr; }

void write_row(TensorType type, const CodedRow& from, std::byte* row) {
  const BlockType& blocks = block_type(type);
  assert(blocks.write && from.codes.size() % info(type).block_elements == 0 && has_the_size_of(from, blocks.format));
  blocks.write(blocks, from, reinterpret_cast<uint8_t*>(row));
}

bool fit_parts(TensorType type, std::span<const float> weights, std::span<const float> importance,
               const CodedRow& out) {
  const BlockType& blocks = block_type(type);
  assert(blocks.fit && weights.size() == kSuperInputs && importance.size() == kSuperInputs &&
         out.codes.size() == kSuperInputs && has_the_size_of(out, blocks.format));
  return blocks.fit(blocks, weights, importance, out);
}

}  // namespace quire
