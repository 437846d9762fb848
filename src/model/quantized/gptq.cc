// GPTQ: qweight [inputs * bits / 32, outputs] has 32-bit words of consecutive inputs; qzeros [groups, outputs * bits / 32]
// has words of consecutive outputs; scales [groups, outputs].
#include <array>
#include <bit>

#include "model/quantized/bit_fields.h"
#include "model/quantized/group_order.h"
#include "model/quantized/methods.h"
#include "model/quantized/scales.h"

namespace quire {
namespace {

constexpr size_t kUnit = 32;  // fields that begin and end with words, for any number of bits
using Unit = std::array<uint8_t, kUnit>;

// The 32 fields of kBits words.
template <int kBits>
Unit unpack(const std::array<uint32_t, kBits>& words) {
  const uint32_t* w = words.data();
  return std::bit_cast<Unit>(std::array<uint64_t, 4>{eight_fields<kBits, 0>(w), eight_fields<kBits, 1>(w),
                                                     eight_fields<kBits, 2>(w), eight_fields<kBits, 3>(w)});
}

struct GptqRows {
  std::span<const std::byte> weights, zeros;
  const TensorView* scales;
  TensorLabel scale_label;
  int bits;
  bool zeros_minus_one, has_zeros;
  size_t rows, cols, groups;
  std::vector<int32_t> slots;

  // The zero points of outputs 32 * unit and on.
  template <int kBits>
  Unit zeros_of(size_t group, size_t unit) const {
    const size_t words = ceil_div(rows * kBits, 32), first = unit * kBits,
                 count = std::min<size_t>(kBits, words - first);
    std::array<uint32_t, kBits> fields{};
    std::memcpy(fields.data(), zeros.data() + (group * words + first) * sizeof(uint32_t), count * sizeof(uint32_t));
    Unit out = unpack<kBits>(fields);
    if (!zeros_minus_one) return out;
    // The writer subtracted ones from packed words, so a zero point of 0 borrowed from the next field. Adding carries.
    constexpr size_t kBorrows = kBits == 3 ? kUnit : 32 / kBits;  // fields until the borrow ends
    for (size_t i = 0, carry = 0; i < kUnit; ++i) {
      const size_t sum = out[i] + 1 + (i % kBorrows == 0 ? 0 : carry);
      out[i] = static_cast<uint8_t>(sum & ((1 << kBits) - 1));
      carry = sum >> kBits;
    }
    return out;
  }

  template <int kBits>
  void read_codes(std::span<const int> numbers, std::span<const CodedRow> out) const {
    const size_t words = ceil_div(cols * kBits, 32);
    for (size_t first = 0, input = 0; first < words; first += kBits, input += kUnit) {
      const size_t count = std::min<size_t>(kBits, words - first);
      for (size_t n = 0; n < numbers.size(); ++n) {
        std::array<uint32_t, kBits> fields{};
        for (size_t w = 0; w < count; ++w) {
          fields[w] = load_at<uint32_t>(weights, (first + w) * rows + static_cast<size_t>(numbers[n]));
          if (kBits == 8) fields[w] ^= 0x80808080;  // kI8: less 128
        }
        const Unit codes = unpack<kBits>(fields);
        const size_t size = std::min(kUnit, cols - input);
        if (!slots.empty()) {
          for (size_t i = 0; i < size; ++i) out[n].codes[static_cast<size_t>(slots[input + i])] = codes[i];
        } else if (size == kUnit) {  // a constant size, which the compiler makes a few moves
          std::memcpy(out[n].codes.data() + input, codes.data(), kUnit);
        } else {
          std::memcpy(out[n].codes.data() + input, codes.data(), size);
        }
      }
    }
  }

  template <int kBits>
  void read_zeros(std::span<const int> numbers, std::span<const CodedRow> out) const {
    constexpr int kOffset = kBits == 8 ? 128 : 0;
    for (size_t g = 0; g < groups; ++g) {
      size_t unit = SIZE_MAX;
      Unit points{};
      for (size_t n = 0; n < numbers.size(); ++n) {
        const auto row = static_cast<size_t>(numbers[n]);
        if (row / kUnit != unit) points = zeros_of<kBits>(g, unit = row / kUnit);
        out[n].minima[g] = static_cast<uint8_t>(points[row % kUnit] - kOffset);
      }
    }
  }

  void operator()(std::span<const int> numbers, std::span<const CodedRow> out) const {
    with_bits(bits, [&](auto b) {
      read_codes<b()>(numbers, out);
      if (has_zeros) read_zeros<b()>(numbers, out);
    });
    for (size_t g = 0; g < groups; ++g) {
      for (size_t n = 0; n < numbers.size(); ++n) {
        const float scale = read_float(*scales, g * rows + static_cast<size_t>(numbers[n]));
        check_scale(scale, Sign::kAny, scale_label, numbers[n]);  // auto-round makes negative ones
        out[n].scales[g] = std::bit_cast<uint32_t>(scale);
      }
    }
  }

  // Whether every zero point is in the middle.
  template <int kBits>
  bool is_symmetric() const {
    for (size_t g = 0; g < groups; ++g) {
      for (size_t row = 0; row < rows; row += kUnit) {
        const Unit points = zeros_of<kBits>(g, row / kUnit);
        const auto used = std::span(points).first(std::min(kUnit, rows - row));
        if (!std::ranges::all_of(used, [](int zero) { return zero == 1 << (kBits - 1); })) return false;
      }
    }
    return true;
  }
};

}  // namespace

CodedMatrix open_gptq(const ModuleTensors& module, const CodedScheme& scheme) {
  using Shape = ModuleTensors::Shape;
  const uint64_t rows = module.rows(), cols = module.cols(), bits = static_cast<uint64_t>(scheme.bits);
  const int group = scheme.group > 0 ? scheme.group : whole_row(module.name().cols);
  const uint64_t groups = ceil_div(cols, static_cast<uint64_t>(group));
  const TensorView& weights = module.get(".qweight", {TensorType::I32}, Shape{ceil_div(cols * bits, 32), rows});
  const TensorView& zeros = module.get(".qzeros", {TensorType::I32}, Shape{groups, ceil_div(rows * bits, 32)});
  const TensorView& scales = module.get(".scales", kFloatTypes, Shape{groups, rows});
  GroupOrder order = read_group_order(module, ".g_idx", group, scheme.act_order);

  GptqRows reader{.weights = weights.bytes,
                  .zeros = zeros.bytes,
                  .scales = &scales,
                  .scale_label = TensorLabel(module, scales),
                  .bits = scheme.bits,
                  .zeros_minus_one = scheme.zeros_minus_one,
                  .has_zeros = true,
                  .rows = rows,
                  .cols = cols,
                  .groups = groups,
                  .slots = std::move(order.slots)};
  if (scheme.symmetric) with_bits(scheme.bits, [&](auto b) { reader.has_zeros = !reader.is_symmetric<b()>(); });

  CodedMatrix m;
  m.format.codes = bits == 2 ? Codes::kU2 : bits == 3 ? Codes::kU3 : bits == 4 ? Codes::kU4 : Codes::kI8;
  m.format.scale = ScaleKind::kF32;
  m.format.zeros = reader.has_zeros ? ZeroKind::kInteger : ZeroKind::kConstant;
  m.format.zero = reader.has_zeros || bits == 8 ? 0 : 1 << (bits - 1);
  m.format.group = group;
  m.permutation = std::move(order.permutation);
  m.inputs = scheme.inputs;
  m.read_rows = std::move(reader);
  return m;
}

}  // namespace quire
