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

}  // namespace

void WideProducts::start(std::span<float* const, 32> registers, int each, uint64_t descriptor, bool add,
                         const LaneWords4& a, const BlockClocks::Past& past) {
  products_.push_back({registers[0], 2 * each, ProductRows::decode(descriptor), add, group_, past, a});
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
    std::vector<float> b(16 * columns), d(columns);
    for (size_t n = 0; n < columns; ++n) {
      for (int half = 0; half < 2; ++half) {
        uint16_t numbers[8];
        std::memcpy(numbers, shared + product.b.at(static_cast<int>(n), half), sizeof numbers);
        for (size_t k = 0; k < 8; ++k) b[(static_cast<size_t>(half) * 8 + k) * columns + n] = bf16_to_f32(numbers[k]);
      }
    }
    const auto a = rows_of(product.a, low_bf16, high_bf16);
    for (size_t row = 0; row < 16; ++row) {
      // The lanes of a row hold two numbers of each 8 columns: [column / 8][row / 8][column % 2].
      const auto at = [&](size_t n) -> float& {
        const size_t lane = row % 8 * 4 + n % 8 / 2;
        return result->values[lane * each + n / 8 * 4 + row / 8 * 2 + n % 2];
      };
      for (size_t n = 0; n < columns; ++n) d[n] = product.add ? at(n) : 0;
      multiply_row(std::span<const float, 16>(&a[row * 16], 16), b, d);
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
