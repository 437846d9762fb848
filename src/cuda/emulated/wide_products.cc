#include "cuda/emulated/wide_products.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "cuda/alphabet/emulated_numbers.h"

namespace quire::cuda::emulated {
namespace {

// What a kernel reads in registers that a product holds: a NaN that no sum makes.
constexpr uint32_t kHeldRegister = 0x7FA0DEAD;

// registers: `count` of float or int32_t.
bool is_held(const void* registers, size_t count) {
  const auto* const bytes = static_cast<const std::byte*>(registers);
  for (size_t i = 0; i < count; ++i)
    if (std::memcmp(bytes + i * sizeof kHeldRegister, &kHeldRegister, sizeof kHeldRegister) != 0) return false;
  return true;
}

void hold(void* registers, size_t count) {
  auto* const bytes = static_cast<std::byte*>(registers);
  for (size_t i = 0; i < count; ++i)
    std::memcpy(bytes + i * sizeof kHeldRegister, &kHeldRegister, sizeof kHeldRegister);
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

// Where the result of a row and column lies in [lane][columns / 2]: the lanes of a row hold two numbers of each 8 columns,
// [column / 8][row / 8][column % 2].
size_t register_of(size_t row, size_t n, size_t columns) {
  const size_t lane = row % 8 * 4 + n % 8 / 2;
  return lane * (columns / 2) + n / 8 * 4 + row / 8 * 2 + n % 2;
}

// A warp's product. words: [lane][columns / 2], its registers.
void add_floats(const PendingProduct& product, const std::byte* shared, std::span<uint32_t> words) {
  const auto columns = static_cast<size_t>(product.columns);
  const std::vector<float> a = rows_of_product(product);
  const size_t depth = a.size() / 16;
  std::vector<float> b(depth * columns), d(columns);
  for (size_t n = 0; n < columns; ++n) {
    const std::vector<float> column = column_of(product, static_cast<int>(n), shared);
    for (size_t k = 0; k < depth; ++k) b[k * columns + n] = column[k];
  }
  for (size_t row = 0; row < 16; ++row) {
    const auto at = [&](size_t n) -> uint32_t& { return words[register_of(row, n, columns)]; };
    for (size_t n = 0; n < columns; ++n) d[n] = product.add ? std::bit_cast<float>(at(n)) : 0;
    multiply_row(std::span(a).subspan(row * depth, depth), b, d);
    for (size_t n = 0; n < columns; ++n) at(n) = std::bit_cast<uint32_t>(d[n]);
  }
}

// Likewise. Sums wrap around, as the instruction's do.
void add_integers(const PendingProduct& product, const std::byte* shared, std::span<uint32_t> words) {
  const auto a = byte_rows_of(product.a);
  const auto columns = static_cast<size_t>(product.columns);
  for (size_t n = 0; n < columns; ++n) {
    std::array<uint8_t, 32> column;
    for (int half = 0; half < 2; ++half)
      std::memcpy(&column[static_cast<size_t>(16 * half)], shared + product.b.at(static_cast<int>(n), half), 16);
    for (size_t row = 0; row < a.size(); ++row) {
      uint32_t& to = words[register_of(row, n, columns)];
      uint32_t sum = product.add ? to : 0;
      for (size_t k = 0; k < column.size(); ++k)
        sum += static_cast<uint32_t>(static_cast<int8_t>(a[row][k]) * static_cast<int8_t>(column[k]));
      to = sum;
    }
  }
}

}  // namespace

void WideProducts::start(MatrixNumbers numbers, std::span<void* const, 32> registers, int columns, uint64_t descriptor,
                         bool add, const LaneWords4& a, const BlockClocks::Past& past) {
  products_.push_back({numbers, registers[0], columns, ProductRows::decode(descriptor), add, group_, past, a});
  const int each = columns / 2;
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
    std::memcpy(&result.values[lane * size], registers[lane], size * sizeof(uint32_t));
    hold(registers[lane], size);
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
    (product.numbers == MatrixNumbers::kInt8 ? add_integers : add_floats)(product, shared, result->values);
    if (--result->pending > 0) continue;
    const auto each = static_cast<size_t>(result->each);
    for (size_t lane = 0; lane < 32; ++lane) {
      if (!is_held(result->registers[lane], each)) touched = static_cast<int>(lane);
      std::memcpy(result->registers[lane], &result->values[lane * each], each * sizeof(uint32_t));
    }
    results_.erase(result);
  }
  products_.erase(products_.begin(), products_.begin() + static_cast<std::ptrdiff_t>(finished.size()));
  return touched;
}

}  // namespace quire::cuda::emulated
