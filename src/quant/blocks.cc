#include "quant/blocks.h"

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <cstring>

#include "base/error.h"
#include "base/half.h"
#include "quant/coded_chunk.h"
#include "quant/gguf_blocks.h"

namespace quire {
namespace {

// Elements of one call of read_row(): whole blocks of every type, in buffers on the stack.
constexpr size_t kChunk = kSuperInputs;

template <class Source, class Convert>
void convert(const std::byte* source, std::span<float> out, const Convert& convert) {
  for (size_t i = 0; i < out.size(); ++i) {
    Source value;
    std::memcpy(&value, source + i * sizeof value, sizeof value);
    out[i] = convert(value);
  }
}

void decode_blocks(TensorType type, const std::byte* blocks, std::span<float> out) {
  const PanelFormat& format = panel_format(type);
  CodedChunk chunk(format);
  while (!out.empty()) {
    const size_t elements = std::min(out.size(), kChunk);
    const CodedRow row = chunk.first(elements);
    read_row(type, blocks, row);
    decode_row(format, panel_factor(type), row, out.first(elements));
    blocks += elements / info(type).block_elements * info(type).block_bytes;
    out = out.subspan(elements);
  }
}

}  // namespace

void dequantize(TensorType type, std::span<const std::byte> blocks, std::span<float> out) {
  const TensorTypeInfo& t = info(type);
  if (!has_panel_format(type)) throw unsupported("tensor type {} cannot be loaded", t.name);
  assert(out.size() % t.block_elements == 0 && blocks.size() == out.size() / t.block_elements * t.block_bytes);
  switch (type) {
    case TensorType::F32:
      return convert<float>(blocks.data(), out, [](float f) { return f; });
    case TensorType::F16:
      return convert<uint16_t>(blocks.data(), out, f16_to_f32);
    case TensorType::BF16:
      return convert<uint16_t>(blocks.data(), out, bf16_to_f32);
    default:
      return decode_blocks(type, blocks.data(), out);
  }
}

}  // namespace quire
