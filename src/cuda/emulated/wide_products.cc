#include "cuda/emulated/wide_products.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "cuda/alphabet/emulated_numbers.h"

namespace quire::cuda::emulated {
namespace {

// What a kernel reads in registers that a product holds: a NaN that no sum makes.
constexpr uint32_t kHeldRegister = 0x7FA0DEAD;

bool is_held(std::span<const float> registers) {
  return std::ranges::all_of(registers, [](const float& v) {
    uint32_t bits;
    std::memcpy(&bits, &v, sizeof bits);
    return bits == kHeldRegister;
  });
}

void hold(std::span<float> registers) {
  for (float& v : registers) std::memcpy(&v, &kHeldRegister, sizeof v);
}

// The rows of a, [16][16] of bf16 or [16][32] of E4M3.
std::vector<float> rows_of_product(const PendingProduct& product) {
  if (product.numbers == MatrixNumbers::kBfloat16) {
    const auto rows = rows_of(product.a, low_bf16, high_bf16);
    return {rows.begin(), rows.end()};
  }
  std::vector<float> rows;
  for (const auto& row : byte_rows_of(product.a)) {
    for (const uint8_t number : row) rows.push_back(e4m3(number));
  }
  return rows;
}

// A column of b^T, from shared memory.
std::vector<float> column_of(const PendingProduct& product, int n, const std::byte* shared) {
  std::vector<float> column;
  for (int half = 0; half < 2; ++half) {
    const std::byte* const at = shared + product.b.at(n, half);
    if (product.numbers == MatrixNumbers::kE4M3) {
      for (size_t k = 0; k < 16; ++k) column.push_back(e4m3(static_cast<uint8_t>(at[k])));
      continue;
    }
    uint16_t numbers[8];
    std::memcpy(numbers, at, sizeof numbers);
    for (const uint16_t number : numbers) column.push_back(bf16_to_f32(number));
  }
  return column;
}

}  // namespace

void WideProducts::start(MatrixNumbers numbers, std::span<float* const, 32> registers, int each, uint64_t descriptor,
                         bool add, const LaneWords4& a, const BlockClocks::Past& past) {
  products_.push_back({numbers, registers[0], 2 * each, ProductRows::decode(descriptor), add, group_, past, a});
  history_ = (history_ ^ descriptor) * 0x9E3779B97F4A7C15 + static_cast<uint64_t>(each);
  const auto known = std::ranges::find_if(results_, [&](const auto& r) { return r.registers[0] == registers[0]; });
  if (known != results_.end()) {
    ++known->pending;
    return;
  }
  ProductResult& result = results_.emplace_back();
  std::ranges::copy(registers, result.registers.begin());
  result.each = each;
  result.pending = 1;
  const auto size = static_cast<size_t>(each);
  result.values.resize(32 * size);
  for (size_t lane = 0; lane < 32; ++lane) {
    std::memcpy(&result.values[lane * size], registers[lane], size * sizeof(float));
    hold({registers[lane], size});
  }
}

std::span<const PendingProduct> WideProducts::due(int groups) const {
  const auto end = std::ranges::find_if(
      products_, [&](const PendingProduct& p) { return p.group + static_cast<uint32_t>(groups) >= group_; });
  return {products_.begin(), end};
}

int WideProducts::wait(int groups, const std::byte* shared) {
  fenced_ = false;
  int touched = -1;
  const auto finished = due(groups);
  for (const PendingProduct& product : finished) {
    const auto result = std::ranges::find_if(results_, [&](const auto& r) { return r.registers[0] == product.result; });
    const auto each = static_cast<size_t>(result->each), columns = 2 * each;
    const std::vector<float> a = rows_of_product(product);
    const size_t depth = a.size() / 16;
    std::vector<float> b(depth * columns), d(columns);
    for (size_t n = 0; n < columns; ++n) {
      const std::vector<float> column = column_of(product, static_cast<int>(n), shared);
      for (size_t k = 0; k < depth; ++k) b[k * columns + n] = column[k];
    }
    for (size_t row = 0; row < 16; ++row) {
      // The lanes of a row hold two numbers of each 8 columns: [column / 8][row / 8][column % 2].
      const auto at = [&](size_t n) -> float& {
        const size_t lane = row % 8 * 4 + n % 8 / 2;
        return result->values[lane * each + n / 8 * 4 + row / 8 * 2 + n % 2];
      };
      for (size_t n = 0; n < columns; ++n) d[n] = product.add ? at(n) : 0;
      multiply_row(std::span(a).subspan(row * depth, depth), b, d);
      for (size_t n = 0; n < columns; ++n) at(n) = d[n];
    }
    if (--result->pending > 0) continue;
    for (size_t lane = 0; lane < 32; ++lane) {
      if (!is_held({result->registers[lane], each})) touched = static_cast<int>(lane);
      std::memcpy(result->registers[lane], &result->values[lane * each], each * sizeof(float));
    }
    results_.erase(result);
  }
  products_.erase(products_.begin(), products_.begin() + static_cast<std::ptrdiff_t>(finished.size()));
  return touched;
}

}  // namespace quire::cuda::emulated
