// links: model
// Any JSON document, as config.json, gives the schemes of a quantized model, none, or an Error.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "model/quantized/quantization.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const auto q = quire::read_quantization(quire::JsonField::parse(text, "config.json"));
    if (!q) return 0;
    for (const auto& part : q->parts) {
      const quire::CodedScheme& s = part.scheme;
      const bool sound = s.bits >= 2 && s.bits <= 8 && s.group >= 0 && s.row_block >= 0 && s.col_block >= 0;
      const bool has_block = s.scales != quire::CodedScheme::Scales::kBlock || (s.row_block > 0 && s.col_block > 0);
      if (!sound || !has_block || (s.group != 16 && s.group % 32 != 0)) __builtin_trap();
    }
    q->find_scheme("model.layers.11.mlp.down_proj");
    q->ignores("model.layers.11.self_attn.k_scale");
  } catch (const quire::Error&) {
  }
  return 0;
}
