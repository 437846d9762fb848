#include "plan/random_weights.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "base/half.h"
#include "kernels/packed.h"

namespace quire {
namespace {

// Of a matrix; the others are copies of them.
constexpr int kDistinctPanels = 7;
constexpr float kScale = 1.0f / 64;  // times codes of up to 127: weights of at most 2

// Fills bytes with copies of a number.
template <class T>
void fill_numbers(std::span<std::byte> bytes, T number) {
  for (size_t i = 0; i + sizeof(T) <= bytes.size(); i += sizeof(T)) std::memcpy(&bytes[i], &number, sizeof(T));
}

void fill_scales(std::span<std::byte> bytes, ScaleKind kind) {
  switch (kind) {
    case ScaleKind::kNone:
      return;
    case ScaleKind::kF16:
      return fill_numbers(bytes, f32_to_f16(kScale));
    case ScaleKind::kF32:
      return fill_numbers(bytes, kScale);
    case ScaleKind::kE8M0:
      return fill_numbers(bytes, uint8_t{122});  // 2^-6
    case ScaleKind::kE4M3:
      return fill_numbers(bytes, uint8_t{0x08});  // 2^-6
    case ScaleKind::kSuper:
      return fill_numbers(bytes, int8_t{1});
  }
}

// Minima that centre the weights on zero: otherwise all activations would be alike.
void fill_minima(std::span<std::byte> bytes, const PanelFormat& format) {
  const bool is_unsigned = format.codes <= Codes::kU6;
  const int middle = is_unsigned ? 1 << (code_bits(format.codes) - 1) : 0;
  const float minimum = -kScale * static_cast<float>(middle);
  switch (format.zeros) {
    case ZeroKind::kConstant:
      return;
    case ZeroKind::kF16:
      return fill_numbers(bytes, f32_to_f16(minimum));
    case ZeroKind::kF32:
      return fill_numbers(bytes, minimum);
    case ZeroKind::kSuper:
    case ZeroKind::kInteger:
      return fill_numbers(bytes, static_cast<int8_t>(middle));
  }
}

void fill_codes(std::span<std::byte> bytes, Codes codes, std::mt19937& random) {
  const auto numbers = [&](auto make) {
    for (size_t i = 0; i < bytes.size(); i += sizeof(make())) {
      const auto number = make();
      std::memcpy(&bytes[i], &number, sizeof(number));
    }
  };
  const auto small = [&] { return (static_cast<float>(random() % 2001) - 1000) / 16000; };
  if (codes == Codes::kBf16) return numbers([&] { return f32_to_bf16(small()); });
  if (codes == Codes::kF16) return numbers([&] { return f32_to_f16(small()); });
  if (codes == Codes::kF32) return numbers(small);
  // Without the bits of NaN, which an E4M3 number with all of 7 bits is.
  const unsigned mask = codes == Codes::kE4M3 ? 0xB7 : 0xFF;
  numbers([&] { return static_cast<uint8_t>(random() & mask); });
}

std::vector<std::byte> random_panel(const PackedMatrix& m, std::mt19937& random) {
  std::vector<std::byte> panel(m.layout.bytes);
  const PanelLayout& l = m.layout;
  // The parts lie in the order of PanelLayout; a part that the format lacks is empty.
  const size_t offsets[] = {l.supers, l.super_minima, l.scales, l.minima, l.codes};
  const auto part = [&](size_t begin) {
    size_t end = l.bytes;
    for (const size_t offset : offsets) {
      if (offset > begin) end = std::min(end, offset);
    }
    return std::span(panel).subspan(begin, end - begin);
  };
  if (m.format.scale == ScaleKind::kSuper) fill_numbers(part(l.supers), f32_to_f16(kScale));
  if (m.format.zeros == ZeroKind::kSuper) fill_numbers(part(l.super_minima), f32_to_f16(kScale));
  if (has_scales(m.format)) fill_scales(part(l.scales), m.format.scale);
  if (has_minima(m.format)) fill_minima(part(l.minima), m.format);
  const size_t codes = l.block_bytes * static_cast<size_t>(m.blocks());
  fill_codes(std::span(panel).subspan(l.codes, codes), m.format.codes, random);
  return panel;
}

// Lists the matrices, and gives the vectors their numbers.
class RandomWeights : public TensorVisitor {
 public:
  RandomWeights(const std::function<const PanelFormat&(const Slot&)>& format_of, Backend& backend)
      : format_of_(format_of), backend_(backend) {}

  void matrix(const Slot& slot, int rows, int cols, Linear& to) override {
    to.weight = describe_packed(format_of_(slot), 1, rows, cols);
    matrices.push_back({&to.weight, bytes});
    bytes += to.weight.bytes();
  }
  void vector(const Slot& slot, const std::vector<int>& shape, Vector& to, Change) override {
    size_t size = 1;
    for (const int n : shape) size *= static_cast<size_t>(n);
    std::vector<float> values(size, slot.tensor == Tensor::kDecay ? -1.0f : 1.0f);  // states forget
    // Normalized inputs of models have a few that are large, which int8x2 computes in float32 (ops/tuning.h: sample_inputs).
    if (slot.tensor == Tensor::kMixerNorm || slot.tensor == Tensor::kFfnNorm || slot.tensor == Tensor::kOutputNorm) {
      for (size_t i = 5; i < size; i += 128) values[i] = 20;
    }
    to = Vector(backend_, values);
  }
  void bias(const Slot&, int size, Vector& to) override {
    to = Vector(backend_, std::vector<float>(static_cast<size_t>(size)));
  }

  std::vector<std::pair<PackedMatrix*, size_t>> matrices;  // with their places in memory
  size_t bytes = 0;

 private:
  const std::function<const PanelFormat&(const Slot&)>& format_of_;
  Backend& backend_;
};

}  // namespace

Weights random_weights(const ModelConfig& config, const std::function<const PanelFormat&(const Slot&)>& format_of,
                       Backend& backend, Team& team) {
  Weights w;
  RandomWeights list(format_of, backend);
  visit_tensors(config, w, list);
  w.memory = BackendMemory(backend, list.bytes);
  w.matrix_bytes = list.bytes;
  std::mt19937 random(1);
  for (const auto& listed : list.matrices) {
    PackedMatrix* const matrix = listed.first;
    const size_t place = listed.second;
    matrix->data = w.memory.data() + place;
    std::vector<std::vector<std::byte>> panels;
    while (std::cmp_less(panels.size(), std::min(matrix->panels(), kDistinctPanels)))
      panels.push_back(random_panel(*matrix, random));
    backend.write(w.memory.data() + place, matrix->bytes(), [&](std::span<std::byte> to) {
      // As loading does: the thread that writes a panel is the first to touch its memory.
      team.for_tiles(matrix->panels(), [&](int p, int) {
        const std::vector<std::byte>& panel = panels[static_cast<size_t>(p) % panels.size()];
        std::memcpy(&to[static_cast<size_t>(p) * panel.size()], panel.data(), panel.size());
      });
    });
  }
  if (config.tied_output) w.output.weight = w.embedding.weight;
  return w;
}

}  // namespace quire
