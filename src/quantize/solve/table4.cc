#include "quantize/solve/table4.h"

#include <algorithm>
#include <cmath>
#include <span>

namespace quire {
namespace {

// Quantiles of the normal distribution, as in bitsandbytes' functional.py.
constexpr std::array<float, 16> kNf4 = {-1.0f,
                                        -0.6961928009986877f,
                                        -0.5250730514526367f,
                                        -0.39491748809814453f,
                                        -0.28444138169288635f,
                                        -0.18477343022823334f,
                                        -0.09105003625154495f,
                                        0.0f,
                                        0.07958029955625534f,
                                        0.16093020141124725f,
                                        0.24611230194568634f,
                                        0.33791524171829224f,
                                        0.44070982933044434f,
                                        0.5626170039176941f,
                                        0.7229568362236023f,
                                        1.0f};
constexpr std::array<float, 16> kFp4 = {0, 0.0625f / 12,  8.0f / 12,  1,  4.0f / 12,  0.5f,  2.0f / 12,  0.25f,
                                        0, -0.0625f / 12, -8.0f / 12, -1, -4.0f / 12, -0.5f, -2.0f / 12, -0.25f};

std::array<float, 256> make_dynamic_map() {
  // For each of 7 powers of ten, the middles of 2^i equal parts of 0.1 .. 1, of either sign; and 0 and 1.
  std::array<float, 256> map{};
  size_t at = 0;
  for (int i = 0; i < 7; ++i) {
    const int parts = 1 << i;
    const auto power = static_cast<float>(std::pow(10.0, i - 6));
    // As torch.linspace(): from the nearer end, fused.
    const float step = (1.0f - 0.1f) / static_cast<float>(parts);
    const auto bound = [&](int k) {
      return k < (parts + 1) / 2 ? std::fma(step, static_cast<float>(k), 0.1f)
                                 : std::fma(-step, static_cast<float>(parts - k), 1.0f);
    };
    for (int k = 0; k < parts; ++k) {
      const float middle = power * ((bound(k) + bound(k + 1)) / 2.0f);
      map[at++] = middle;
      map[at++] = -middle;
    }
  }
  map[at++] = 0;
  map[at++] = 1;
  std::ranges::sort(map);
  return map;
}

// The codes of a table in rising order of their numbers, and the bounds between neighbours.
struct SortedTable {
  explicit SortedTable(const std::array<float, 16>& table) {
    for (uint8_t code = 0; code < 16; ++code) codes[code] = code;
    std::ranges::stable_sort(codes, {}, [&](uint8_t code) { return table[code]; });
    for (size_t i = 0; i < bounds.size(); ++i) bounds[i] = (table[codes[i]] + table[codes[i + 1]]) / 2;
  }
  // At a bound, the lower one; 0 always has the first of its codes.
  uint8_t nearest(float x) const {
    size_t at = 0;
    for (const float bound : bounds) at += x > bound;
    return zero_or(codes[at]);
  }

  std::array<uint8_t, 16> codes;
  std::array<float, 15> bounds;

 private:
  // FP4 has two zeros, 0 and 8, with the bound 0 between them; NF4's code 8 is a number of its own.
  uint8_t zero_or(uint8_t code) const { return code == 8 && bounds[7] == 0 ? uint8_t{0} : code; }
};

// The nearest number's place in a table in rising order.
uint8_t nearest_sorted(const std::array<float, 256>& table, float x) {
  const auto above = static_cast<size_t>(std::ranges::lower_bound(table, x) - table.begin());
  if (above == 0) return 0;
  if (above == table.size()) return 255;
  const size_t below = above - 1;
  return static_cast<uint8_t>(std::fabs(x - table[above]) < std::fabs(x - table[below]) ? above : below);
}

float largest_in(std::span<const float> values) {
  float largest = 0;
  for (const float x : values) largest = std::max(largest, std::fabs(x));
  return largest;
}

float bounded(float x) { return std::clamp(x, -1.0f, 1.0f); }

void nest_magnitudes(Table4Matrix& to) {
  double sum = 0;
  for (const float magnitude : to.magnitudes) sum += static_cast<double>(magnitude);
  to.offset = static_cast<float>(sum / static_cast<double>(std::max<size_t>(1, to.magnitudes.size())));
  for (float& magnitude : to.magnitudes) magnitude -= to.offset;
  for (size_t first = 0; first < to.magnitudes.size(); first += Table4Matrix::kNestedBlock) {
    const size_t count = std::min<size_t>(Table4Matrix::kNestedBlock, to.magnitudes.size() - first);
    const std::span<const float> block = std::span(to.magnitudes).subspan(first, count);
    const float largest = largest_in(block), inverse = largest > 0 ? 1 / largest : 0;
    to.nested_scales.push_back(largest);
    for (const float x : block) to.nested.push_back(nearest_sorted(dynamic_map(), bounded(x * inverse)));
  }
  to.magnitudes.clear();
}

}  // namespace

const std::array<float, 16>& table_of(Table4Matrix::Kind kind) {
  return kind == Table4Matrix::Kind::kNf4 ? kNf4 : kFp4;
}

const std::array<float, 256>& dynamic_map() {
  static const std::array<float, 256> map = make_dynamic_map();
  return map;
}

float Table4Matrix::magnitude_of(size_t block) const {
  if (nested.empty()) return magnitudes[block];
  return dynamic_map()[nested[block]] * nested_scales[block / kNestedBlock] + offset;
}

FloatMatrix Table4Matrix::dequantized() const {
  FloatMatrix all(rows, cols);
  const std::array<float, 16>& table = table_of(kind);
  for (size_t i = 0; i < codes.size(); ++i) all.values[i] = table[codes[i]] * magnitude_of(i / kBlock);
  return all;
}

Table4Matrix round_to_table4(const FloatMatrix& weights, Table4Matrix::Kind kind, bool double_quantization,
                             Team& team) {
  Table4Matrix to{.kind = kind, .rows = weights.rows, .cols = weights.cols};
  constexpr size_t kBlocksPerTile = 256;
  const SortedTable table(table_of(kind));
  const size_t blocks = (weights.values.size() + Table4Matrix::kBlock - 1) / Table4Matrix::kBlock;
  to.codes.resize(weights.values.size());
  to.magnitudes.resize(blocks);
  team.for_tiles(static_cast<int>((blocks + kBlocksPerTile - 1) / kBlocksPerTile), [&](int tile, int) {
    const size_t begin = static_cast<size_t>(tile) * kBlocksPerTile, end = std::min(blocks, begin + kBlocksPerTile);
    for (size_t block = begin; block < end; ++block) {
      const size_t first = block * Table4Matrix::kBlock,
                   count = std::min<size_t>(Table4Matrix::kBlock, weights.values.size() - first);
      const std::span<const float> from = std::span(weights.values).subspan(first, count);
      const float largest = largest_in(from), inverse = largest > 0 ? 1 / largest : 0;
      to.magnitudes[block] = largest;
      for (size_t i = 0; i < count; ++i) to.codes[first + i] = table.nearest(bounded(from[i] * inverse));
    }
  });
  if (double_quantization) nest_magnitudes(to);
  return to;
}

}  // namespace quire
