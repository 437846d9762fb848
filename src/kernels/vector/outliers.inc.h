// Outliers: inputs that stay float32 while the others of their row are rounded to int8 (kInt8x2, kInt8Row). Each is
// multiplied by its own column of weights.
#pragma once

#include "kernels/vector/scales.inc.h"

namespace quire::QUIRE_ISA {
namespace {

// Places of eight inputs in kPairOrder: a digit each, from the lowest on.
inline constexpr uint32_t kPlaces = 0x75316420;

// The codes of an input, of kWidth outputs, less the zero point. codes: of the panel.
template <Codes kCodes>
QUIRE_INLINE Floats code_column(const PanelFormat& f, const std::byte* codes, uint32_t input, int half) {
  constexpr int kBits = code_bits(kCodes);
  const uint32_t line = input % kBlockInputs / 8, place = kPlaces >> input % 8 * 4 & 7, byte = place & 3,
                 high = place / 4;
  const std::byte* block = codes + input / kBlockInputs * code_block_bytes(kCodes);
  const int at = half * kWidth * 4;
  if constexpr (kCodes == Codes::kI8) {
    const Ints bytes = Ints::load(block + 128 * line + 64 * high + at);
    return Floats::of(shift_right_signed<24>(shift_left(bytes, 24 - 8 * byte)));
  }
  Ints code = Ints::all(0);
  if constexpr (kBits >= 4)
    code = band(shift_right(Ints::load(block + 64 * line + at), 8 * byte + 4 * high), Ints::all(15));
  if constexpr (kCodes == Codes::kTable4) return look_up(Floats16::load(f.table.data()), code);
  if constexpr (kBits == 2 || kBits == 3 || kBits == 6) {
    const Ints plane = Ints::load(block + (kBits == 6 ? 256 : 0) + line / 2 * 64 + at);
    const Ints two = band(shift_right(plane, 8 * byte + 4 * (line % 2) + 2 * high), Ints::all(3));
    code = kBits == 6 ? bor(code, shift_left<4>(two)) : two;
  }
  if constexpr (kBits == 3 || kBits == 5) {
    const std::byte* masks = block + (kBits == 3 ? 128 : 256) + 16 * line + 8 * high + at / 8;
    code = bor(code, shift_left<kBits - 1>(bits_of_outputs(masks, static_cast<int>(byte))));
  }
  return Floats::of(sub(code, Ints::all(f.zero)));
}
// Calls run.operator()<codes>() for integer codes.
template <class Run>
QUIRE_INLINE void with_integer_codes(Codes codes, const Run& run) {
  switch (codes) {
    case Codes::kU2:
      return run.template operator()<Codes::kU2>();
    case Codes::kU3:
      return run.template operator()<Codes::kU3>();
    case Codes::kU4:
      return run.template operator()<Codes::kU4>();
    case Codes::kU5:
      return run.template operator()<Codes::kU5>();
    case Codes::kU6:
      return run.template operator()<Codes::kU6>();
    case Codes::kI8:
      return run.template operator()<Codes::kI8>();
    case Codes::kTable4:
      return run.template operator()<Codes::kTable4>();
    default:
      return;
  }
}

// Panels whose columns are decoded together: two registers.
inline constexpr int kColumnPanels = kWidth == 16 ? 2 : 1;
inline constexpr int kColumnFloats = kColumnPanels * kPanel;
inline constexpr int kColumns = 64;  // decoded at once: 8 KiB

// out [count][kColumnFloats] = the weights of `inputs` in kPanels panels from p on, with the bits of packed_weight().
template <int kPanels>
QUIRE_INLINE void decode_columns(const PackedMatrix& m, int p, const uint32_t* inputs, int count, float* out) {
  const PanelFormat& f = m.format;
  const std::byte* const panels[] = {m.panel(p), m.panel(p + kPanels - 1)};
  const auto for_each = [&](const auto& put) __attribute__((always_inline)) {
    for (int i = 0; i < count; ++i) {
      const uint32_t input = inputs[i];
      QUIRE_UNROLL
      for (int r = 0; r < kPanels * kHalves; ++r)
        put(panels[r / kHalves], input, r % kHalves, out + i * kColumnFloats + r * kWidth);
    }
  };
  const auto group_of = [group = static_cast<uint32_t>(f.group)](uint32_t input) {  // divisions are slow
    return static_cast<int>(group == kBlockInputs ? input / kBlockInputs : group == 16 ? input / 16 : input / group);
  };
  // The usual kinds take one pass over the columns, others further ones.
  const auto is = [&f](ScaleKind scale, ZeroKind zeros) { return f.scale == scale && f.zeros == zeros; };
  bool usual = true;
  with_integer_codes(
      f.codes, [&]<Codes kCodes>() __attribute__((always_inline)) {
        const auto decode = [&]<ScaleKind kScale, ZeroKind kZeros>() __attribute__((always_inline)) {
          for_each([&](const std::byte* panel, uint32_t input, int half, float* to) __attribute__((always_inline)) {
            Floats weight = code_column<kCodes>(f, panel + m.layout.codes, input, half);
            const int group = group_of(input);
            if constexpr (kScale != ScaleKind::kNone) weight = mul(group_scale<kScale>(m, panel, group, half), weight);
            if constexpr (kZeros != ZeroKind::kConstant)
              weight = add(weight, group_minimum<kZeros>(m, panel, group, half, weight));
            store(to, weight);
          });
        };
        if (is(ScaleKind::kF16, ZeroKind::kConstant)) {
          decode.template operator()<ScaleKind::kF16, ZeroKind::kConstant>();
        } else if (is(ScaleKind::kF16, ZeroKind::kF16)) {
          decode.template operator()<ScaleKind::kF16, ZeroKind::kF16>();
        } else if (is(ScaleKind::kSuper, ZeroKind::kConstant)) {
          decode.template operator()<ScaleKind::kSuper, ZeroKind::kConstant>();
        } else if (is(ScaleKind::kSuper, ZeroKind::kSuper)) {
          decode.template operator()<ScaleKind::kSuper, ZeroKind::kSuper>();
        } else {
          decode.template operator()<ScaleKind::kNone, ZeroKind::kConstant>();
          usual = false;
        }
      });
  if (usual) return;
  with_scale_kind(
      f.scale, [&]<ScaleKind kKind>() __attribute__((always_inline)) {
        for_each([&](const std::byte* panel, uint32_t input, int half, float* to) __attribute__((always_inline)) {
          store(to, mul(group_scale<kKind>(m, panel, group_of(input), half), Floats::load(to)));
        });
      });
  with_zero_kind(
      f.zeros, [&]<ZeroKind kKind>() __attribute__((always_inline)) {
        for_each([&](const std::byte* panel, uint32_t input, int half, float* to) __attribute__((always_inline)) {
          const int group = group_of(input);
          Floats scale = Floats::all(0.0f);
          if constexpr (kKind == ZeroKind::kInteger) {
            with_scale_kind(
                f.scale, [&]<ScaleKind kScale>()
                             __attribute__((always_inline)) { scale = group_scale<kScale>(m, panel, group, half); });
          }
          store(to, add(Floats::load(to), group_minimum<kKind>(m, panel, group, half, scale)));
        });
      });
}

// The outliers of some rows of kInt8x2. Those of many rows are ordered by input: a column of weights is decoded once for
// all of the rows.
class TileOutliers {
 public:
  // Takes the outliers of as many of the rows as there is room for, but at least one, and returns their number.
  int fill(const std::byte* x, size_t x_stride, int cols, int rows) {
    const int blocks = (cols + kBlockInputs - 1) / kBlockInputs;
    columns_ = 0;
    rows_ = 0;
    const auto row_at = [=](int r) {
      const auto* row = reinterpret_cast<const Int8Block*>(x + static_cast<size_t>(r) * x_stride);
      return Row{reinterpret_cast<const Outlier*>(row + blocks), static_cast<int>(row->outliers)};
    };
    for (int all = 0; rows_ < rows; ++rows_) {
      all += row_at(rows_).count;
      if (all > kMostOutliers) break;
      ends_[rows_] = all;
    }
    ordered_ = rows_ > kFewRows && cols <= kMostInputs;
    if (ordered_) {
      order(row_at, cols);
      return rows_;
    }
    for (int r = 0; r < rows_; ++r) {
      const Row row = row_at(r);
      for (int i = 0; i < row.count; ++i, ++columns_)
        inputs_[columns_] = static_cast<uint32_t>(row.first[i].input), entries_[columns_].x = row.first[i].x;
    }
    return rows_;
  }

  // Adds their products with panels p .. p + panels - 1 to out, the sums of the rows [panels][.., kPanel], panel_floats
  // apart.
  [[gnu::noinline]] void add_products(const PackedMatrix& m, int p, int panels, size_t panel_floats, float* out) const {
    for (int i = 0; i < panels; i += kColumnPanels) {
      with_count<kColumnPanels>(panels - i < kColumnPanels ? panels - i : kColumnPanels, [&]<int kPanels>() {
        add_columns<kPanels>(m, p + i, panel_floats, out + static_cast<size_t>(i) * panel_floats);
      });
    }
  }

 private:
  static constexpr int kFewRows = 4, kMostInputs = 32768;  // that are ordered
  static constexpr int kMostRows = 256;
  struct Entry {
    uint16_t weights, sums;  // ordered: bytes from the first of the columns that are decoded together, and of the rows
    float x;
  };
  struct Row {
    const Outlier* first;
    int count;
  };

  // A counting sort.
  template <class RowAt>
  void order(const RowAt& row_at, int cols) {
    const int words = (cols + 63) / 64;
    __builtin_memset(at_, 0, static_cast<size_t>(cols) * sizeof at_[0]);
    __builtin_memset(used_, 0, static_cast<size_t>(words) * sizeof used_[0]);
    for (int r = 0; r < rows_; ++r) {
      const Row row = row_at(r);
      for (int i = 0; i < row.count; ++i) {
        const int input = row.first[i].input;
        ++at_[input];
        used_[input / 64] |= uint64_t{1} << input % 64;
      }
    }
    uint16_t begin = 0;
    for (int word = 0; word < words; ++word) {
      for (uint64_t left = used_[word]; left != 0; left &= left - 1) {
        const int input = 64 * word + __builtin_ctzll(left);
        if (columns_ % kColumns == 0) begins_[columns_ / kColumns] = begin;
        weights_[input] = static_cast<uint16_t>(columns_ % kColumns * kColumnFloats * sizeof(float));
        inputs_[columns_++] = static_cast<uint32_t>(input);
        begin = static_cast<uint16_t>(begin + at_[input]);
        at_[input] = static_cast<uint16_t>(begin - at_[input]);
      }
    }
    begins_[(columns_ + kColumns - 1) / kColumns] = begin;
    for (int r = 0; r < rows_; ++r) {
      const Row row = row_at(r);
      for (int i = 0; i < row.count; ++i) {
        const Outlier& outlier = row.first[i];
        entries_[at_[outlier.input]++] = {weights_[outlier.input], static_cast<uint16_t>(r * kPanel * sizeof(float)),
                                          outlier.x};
      }
    }
  }

  template <int kPanels>
  [[gnu::always_inline]] void add_columns(const PackedMatrix& m, int p, size_t panel_floats, float* out) const {
    constexpr int kRegisters = kPanels * kHalves;
    const auto at = [panel_floats](float* sums, int r) __attribute__((always_inline)) {
      return sums + static_cast<size_t>(r / kHalves) * panel_floats + r % kHalves * kWidth;
    };
    const auto add_to = [&](float* to, auto&& add) __attribute__((always_inline)) {
      Floats sums[kRegisters];  // loaded before any is stored: those of two panels are 4 KiB apart
      QUIRE_UNROLL
      for (int r = 0; r < kRegisters; ++r) sums[r] = Floats::load(at(to, r));
      add(sums);
      QUIRE_UNROLL
      for (int r = 0; r < kRegisters; ++r) store(at(to, r), sums[r]);
    };
    const auto multiply = [](float x, const float* column, Floats(&sums)[kRegisters]) __attribute__((always_inline)) {
      QUIRE_UNROLL
      for (int r = 0; r < kRegisters; ++r) sums[r] = fma(Floats::all(x), Floats::load(column + r * kWidth), sums[r]);
    };
    alignas(64) float weights[kColumns * kColumnFloats];
    for (int first = 0, row = 0; first < columns_; first += kColumns) {
      const int end = first + kColumns < columns_ ? first + kColumns : columns_;
      decode_columns<kPanels>(m, p, inputs_ + first, end - first, weights);
      if (ordered_) {
        const int chunk = first / kColumns;
        for (const Entry *e = entries_ + begins_[chunk], *last = entries_ + begins_[chunk + 1]; e < last; ++e) {
          add_to(
              out + e->sums / sizeof(float), [&](Floats(&sums)[kRegisters]) __attribute__((always_inline)) {
                multiply(e->x, weights + e->weights / sizeof(float), sums);
              });
        }
        continue;
      }
      int i = first;
      while (i < end) {
        while (ends_[row] <= i) ++row;
        const int stop = ends_[row] < end ? ends_[row] : end;
        add_to(
            out + row * kPanel, [&](Floats(&sums)[kRegisters]) __attribute__((always_inline)) {
              for (; i < stop; ++i) multiply(entries_[i].x, weights + (i - first) * kColumnFloats, sums);
            });
      }
    }
  }

  int rows_, columns_;
  bool ordered_;                                   // else the columns and entries are those of one row after the other
  int ends_[kMostRows];                            // where each row's outliers end, counted from the first row on
  uint32_t inputs_[kMostOutliers];                 // the input of each column
  Entry entries_[kMostOutliers];                   // ordered: by input, then by row
  uint16_t begins_[kMostOutliers / kColumns + 1];  // the first entry of every kColumns-th column, and the end
  uint16_t at_[kMostInputs], weights_[kMostInputs];  // by input
  uint64_t used_[kMostInputs / 64];
};

}  // namespace
}  // namespace quire::QUIRE_ISA
