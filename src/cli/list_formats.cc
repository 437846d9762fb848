// The tables of `quire list --formats`.

#include <fmt/format.h>

#include <array>
#include <string>

#include "base/tensor_type.h"
#include "cli/list.h"
#include "kernels/packed.h"
#include "model/quantized/quantization.h"
#include "quant/gguf_blocks.h"

namespace quire {
namespace {

std::string_view codes_of(const PanelFormat& f) {
  static constexpr std::array<std::string_view, 12> kNames = {"2 bits",
                                                              "3 bits",
                                                              "4 bits",
                                                              "5 bits",
                                                              "6 bits",
                                                              "int8",
                                                              "4 bits, a table of integers",
                                                              "4 bits, a table of floats",
                                                              "E4M3",
                                                              "bf16",
                                                              "f16",
                                                              "f32"};
  return kNames[static_cast<size_t>(f.codes)];
}

std::string_view scales_of(const PanelFormat& f) {
  static constexpr std::array<std::string_view, 6> kNames = {"–",    "f16",  "f32",
                                                             "E8M0", "E4M3", "int8, times an f16 for 256 inputs"};
  return kNames[static_cast<size_t>(f.scale)];
}

std::string_view minima_of(const PanelFormat& f) {
  static constexpr std::array<std::string_view, 5> kNames = {"–", "f16", "int8, times an f16 for 256 inputs",
                                                             "int8 zero points", "f32"};
  return kNames[static_cast<size_t>(f.zeros)];
}

// 4.5, 2.0625
std::string bits(uint64_t bytes, uint64_t weights) {
  return fmt::format("{:.6g}", 8.0 * static_cast<double>(bytes) / static_cast<double>(weights));
}

}  // namespace

std::string gguf_types_markdown() {
  std::string text =
      "| type | bits per weight in the file | in memory | codes | scales | inputs under a scale | minima |\n"
      "|---|---|---|---|---|---|---|\n";
  for (const TensorTypeInfo& t : tensor_types()) {
    if (!t.loadable) continue;
    const PanelFormat& f = panel_format(t.type);
    constexpr int kInputs = 1 << 16;  // so many that padding is nothing
    const uint64_t packed = describe_packed(t.type, kPanel, kInputs).bytes();
    text += fmt::format("| {} | {} | {} | {} | {} | {} | {} |\n", t.name, bits(t.block_bytes, t.block_elements),
                        bits(packed, uint64_t{kPanel} * kInputs), codes_of(f), scales_of(f),
                        f.group > 0 ? std::to_string(f.group) : "–", minima_of(f));
  }
  return text;
}

std::string quantization_methods_markdown() {
  std::string text = "| `quant_method` | loads | refuses | int8 activations |\n|---|---|---|---|\n";
  for (const QuantizationMethod& m : quantization_methods())
    text += fmt::format("| {} | {} | {} | {} |\n", m.name, m.loads, m.refuses, m.inputs);
  return text;
}

}  // namespace quire
