// Random but valid weights of every format, packed, for kernel tests.
#pragma once

#include <cstddef>
#include <cstring>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/half.h"
#include "base/memory.h"
#include "base/tensor_type.h"
#include "kernels/packed.h"
#include "quant/gguf_blocks.h"
#include "quant/synthetic.h"

namespace quire::testing {

// A file type, or a format that only Hugging Face checkpoints have.
struct Weights {
  std::string name;
  PanelFormat format;
  float factor = 1;
  std::optional<TensorType> type{};

  int least_cols() const { return type ? static_cast<int>(info(*type).block_elements) : 16; }
};
inline Weights weights_of(TensorType type) {
  return {std::string(info(type).name), panel_format(type), panel_factor(type), type};
}
// One scale for a row, of up to 65,536 inputs: what takes_int8_rows().
inline Weights int8_row_weights() {
  return {"Int8Rows", {.codes = Codes::kI8, .scale = ScaleKind::kF32, .group = 1 << 16}};
}
inline Weights fp8_weights(int group = 128, ScaleKind scale = ScaleKind::kF32) {
  return {"Fp8", {.codes = Codes::kE4M3, .scale = scale, .group = group}};
}
inline std::vector<Weights> all_weights() {
  std::vector<Weights> all;
  for (const TensorTypeInfo& t : tensor_types()) {
    if (t.loadable) all.push_back(weights_of(t.type));
  }
  const auto add = [&all](std::string name, Codes codes, int group, ZeroKind zeros, int zero) {
    PanelFormat f{.codes = codes, .scale = ScaleKind::kF32, .zeros = zeros, .zero = zero, .group = group};
    for (size_t i = 0; i < 16; ++i) f.table[i] = std::sin(static_cast<float>(i + 1));  // for kFloat4
    all.push_back({std::move(name), f});
  };
  add("Gptq4", Codes::kU4, 128, ZeroKind::kInteger, 0);
  add("Gptq4Symmetric", Codes::kU4, 64, ZeroKind::kConstant, 8);
  add("Gptq3", Codes::kU3, 32, ZeroKind::kInteger, 0);
  add("Gptq3Symmetric", Codes::kU3, 4096, ZeroKind::kConstant, 4);
  add("Gptq2", Codes::kU2, 64, ZeroKind::kInteger, 0);
  add("Gptq2Groups16", Codes::kU2, 16, ZeroKind::kInteger, 0);
  add("Gptq3Groups16", Codes::kU3, 16, ZeroKind::kConstant, 4);
  add("Gptq4Groups16", Codes::kU4, 16, ZeroKind::kInteger, 0);
  add("Gptq8Groups16", Codes::kI8, 16, ZeroKind::kInteger, 0);
  add("Gptq8", Codes::kI8, 128, ZeroKind::kInteger, 0);
  add("Int8", Codes::kI8, 4096, ZeroKind::kConstant, 0);
  add("Affine2", Codes::kU2, 64, ZeroKind::kF32, 0);
  add("Affine3", Codes::kU3, 32, ZeroKind::kF32, 0);
  add("Affine4", Codes::kU4, 64, ZeroKind::kF32, 0);
  add("Affine4Groups16", Codes::kU4, 16, ZeroKind::kF32, 0);
  add("Affine8", Codes::kI8, 32, ZeroKind::kF32, 0);
  add("Nf4", Codes::kFloat4, 64, ZeroKind::kConstant, 0);
  add("Nf4Groups16", Codes::kFloat4, 16, ZeroKind::kConstant, 0);
  add("Fp8", Codes::kE4M3, 128, ZeroKind::kConstant, 0);
  add("Fp8Groups16", Codes::kE4M3, 16, ZeroKind::kConstant, 0);
  return all;
}

struct OwnedMatrix {
  PackedMatrix matrix;
  LargeBuffer memory;
};
inline OwnedMatrix own(PackedMatrix matrix) {
  OwnedMatrix m{matrix, LargeBuffer(matrix.bytes())};
  m.matrix.data = m.memory.data();
  return m;
}
inline OwnedMatrix pack(TensorType type, int rows, int cols, std::span<const std::byte> source) {
  OwnedMatrix m = own(describe_packed(type, rows, cols));
  pack_panels(m.matrix, type, source, m.memory.data(), 0, m.matrix.panels());
  return m;
}

// Random codes, scales that make weights of about 0.05, minima.
inline void fill_random(const PanelFormat& format, const CodedRow& row, std::mt19937& random) {
  std::normal_distribution<float> normal(0, 0.02f);
  const auto f16 = [&] { return uint32_t{f32_to_f16(normal(random))}; };
  const auto byte = [&](int first, int end) {
    return static_cast<uint8_t>(first + static_cast<int>(random() % static_cast<unsigned>(end - first)));
  };
  const int bits = code_bits(format.codes);
  for (uint8_t& code : row.codes) {
    code = static_cast<uint8_t>(random() & ((1u << bits) - 1));
    if (format.codes == Codes::kE4M3 && (code & 0x7f) == 0x7f) code = 0x38;
  }
  for (uint32_t& scale : row.scales) {
    switch (format.scale) {
      case ScaleKind::kF16:
        scale = f16();
        break;
      case ScaleKind::kE8M0:
        scale = byte(118, 124);
        break;
      case ScaleKind::kE4M3:
        scale = byte(1, 0x40);
        break;
      case ScaleKind::kSuper:
        scale = byte(scale_range(format).least, scale_range(format).most + 1);
        break;
      default:
        scale = std::bit_cast<uint32_t>(normal(random));
    }
  }
  for (uint32_t& minimum : row.minima)
    minimum = format.zeros == ZeroKind::kF16   ? f16()
              : format.zeros == ZeroKind::kF32 ? std::bit_cast<uint32_t>(normal(random))
                                               : byte(-8, 17);
  for (uint16_t& super : row.supers) super = f32_to_f16(normal(random) / 32);
  for (uint16_t& super : row.super_minima) super = f32_to_f16(normal(random) / 32);
}

using SeeRow = std::function<void(int row, const CodedRow&)>;  // may change it

// A random matrix of coded rows. see: called for each before it is packed.
inline OwnedMatrix random_coded(const Weights& w, int rows, int cols, std::mt19937& random, const SeeRow& see = {}) {
  OwnedMatrix m = own(describe_packed(w.format, w.factor, rows, cols));
  const PanelRows memory(w.format, cols);
  for (int p = 0; p < m.matrix.panels(); ++p) {
    const auto panel = memory.first(static_cast<size_t>(std::min(kPanel, rows - p * kPanel)));
    for (size_t n = 0; n < panel.size(); ++n) {
      fill_random(w.format, panel[n], random);
      if (see) see(p * kPanel + static_cast<int>(n), panel[n]);
    }
    pack_panel(m.matrix, panel, m.memory.data() + static_cast<size_t>(p) * m.matrix.layout.bytes);
  }
  return m;
}

inline std::vector<std::byte> random_source(TensorType type, int rows, int cols, std::mt19937& random) {
  return synthetic_matrix(type, rows, cols, 0.05f, random());
}
inline OwnedMatrix random_matrix(TensorType type, int rows, int cols, std::mt19937& random) {
  return pack(type, rows, cols, random_source(type, rows, cols, random));
}
inline OwnedMatrix random_matrix(const Weights& w, int rows, int cols, std::mt19937& random) {
  return has_scales(w.format) ? random_coded(w, rows, cols, random) : random_matrix(*w.type, rows, cols, random);
}

}  // namespace quire::testing
