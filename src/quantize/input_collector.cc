#include "quantize/input_collector.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace quire {
namespace {

constexpr int kColumnsOfTile = 256;

// Adds columns [begin, end), row by row.
void add_columns(InputStatistics& sums, const Rows& x, int rows, int begin, int end) {
  for (int row = 0; row < rows; ++row) {
    const float* const of_row = x.row(row);
    for (int col = begin; col < end; ++col) {
      const float number = of_row[col], magnitude = std::abs(number);
      const auto i = static_cast<size_t>(col);
      sums.squares[i] += static_cast<double>(number) * number;
      sums.magnitudes[i] += magnitude;
      sums.largest[i] = std::max(sums.largest[i], magnitude);
    }
  }
}

// SplitMix64 (Steele et al. 2014).
uint64_t random_of(uint64_t number) {
  uint64_t z = (number + 1) * 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

std::string spell(const Slot& slot) {
  return slot.layer >= 0 ? fmt::format("a matrix of layer {}", slot.layer) : "a matrix outside the layers";
}

}  // namespace

InputCollector::InputCollector(const ModelConfig& config, const Weights& weights, const Compute& compute, Wants wants)
    : compute_(compute), wants_(std::move(wants)) {
  for_each_matrix(config, weights, [&](const Slot& slot, const Linear& linear) {
    linears_[{slot.tensor, slot.layer, slot.item}] = &linear;
    wants_gram_[&linear] = wants_.gram && wants_.gram(slot);
  });
}

InputStatistics* InputCollector::sums_of(std::span<const Linear* const> linears, int cols) {
  std::shared_ptr<InputStatistics> all;
  bool wants_gram = false;
  for (const Linear* linear : linears) {
    const auto wanted = wants_gram_.find(linear);
    if (wanted == wants_gram_.end()) continue;  // not the model's own: some rows of its output matrix
    std::shared_ptr<InputStatistics>& one = seen_[linear];
    if (!one) one = all ? all : std::make_shared<InputStatistics>();
    all = one;
    wants_gram |= wanted->second;
  }
  if (all && all->cols == 0) {
    const auto size = static_cast<size_t>(cols);
    all->cols = cols;
    all->squares.resize(size);
    all->magnitudes.resize(size);
    all->largest.resize(size);
    if (wants_gram) all->gram.resize(size * size);
  }
  return all.get();
}

void InputCollector::see(std::span<const Linear* const> linears, const Rows& x, int rows) {
  InputStatistics* const sums = sums_of(linears, x.cols);
  if (!sums || rows == 0) return;
  compute_.team.for_tiles((x.cols + kColumnsOfTile - 1) / kColumnsOfTile, [&](int tile, int) {
    const int begin = tile * kColumnsOfTile;
    add_columns(*sums, x, rows, begin, std::min(x.cols, begin + kColumnsOfTile));
  });
  if (!sums->gram.empty()) gram_.add(compute_, x, rows, sums->gram);
  sample(*sums, x, rows);
  sums->rows += static_cast<uint64_t>(rows);
}

// Algorithm R (Vitter 1985): each row of the text is kept with the same chance. The draws depend on the row's number.
void InputCollector::sample(InputStatistics& sums, const Rows& x, int rows) const {
  const auto most = static_cast<uint64_t>(wants_.sample_rows);
  const auto cols = static_cast<size_t>(sums.cols);
  for (int row = 0; row < rows && most > 0; ++row) {
    const uint64_t number = sums.rows + static_cast<uint64_t>(row);
    uint64_t place = number;
    if (number < most)
      sums.sample.resize((number + 1) * cols);
    else
      place = random_of(number) % (number + 1);
    if (place < most) std::copy_n(x.row(row), cols, sums.sample.begin() + static_cast<ptrdiff_t>(place * cols));
  }
}

std::shared_ptr<const InputStatistics> InputCollector::of(const Slot& slot) {
  const auto find = [&](Tensor tensor) -> std::shared_ptr<InputStatistics> {
    const auto linear = linears_.find({tensor, slot.layer, slot.item});
    if (linear == linears_.end()) return nullptr;
    const auto seen = seen_.find(linear->second);
    return seen == seen_.end() ? nullptr : seen->second;
  };
  std::shared_ptr<InputStatistics> sums = find(slot.tensor);
  if (!sums && slot.tensor == Tensor::kExpertUp) sums = find(Tensor::kExpertGate);  // InputObserver::see()
  if (!sums || sums->rows == 0) return nullptr;
  if (!std::ranges::all_of(sums->squares, [](double sum) { return std::isfinite(sum); }))
    throw invalid(
        "inputs of {} are not finite, so nothing can be learnt from them; check the model with `quire verify`",
        spell(slot));
  GramSum::mirror(sums->gram, sums->cols);
  return sums;
}

}  // namespace quire
