#include "quantize/allocation/type_errors.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>

#include "base/error.h"
#include "quant/blocks.h"
#include "quant/encode.h"

namespace quire {
namespace {

using T = TensorType;

constexpr T kAllocatable[] = {T::IQ2_XXS, T::IQ2_XS, T::Q2_0,   T::IQ2_S, T::Q2_K,   T::IQ3_XXS,
                              T::IQ3_S,   T::MXFP4,  T::IQ4_XS, T::Q4_K,  T::IQ4_NL, T::Q4_1,
                              T::Q5_K,    T::Q5_0,   T::Q5_1,   T::Q6_K,  T::Q8_0};
constexpr T kOnlyWithImportance[] = {T::IQ2_XXS, T::IQ2_XS, T::IQ2_S, T::IQ3_XXS};

constexpr int kLeastRows = 8, kSampledWeights = 1 << 16;

struct SampledRow {
  const PlannedPart* part;
  int row;        // of the part
  double weight;  // rows that it stands for
};

std::vector<SampledRow> sample_rows(const PlannedTensor& tensor) {
  int64_t all = 0;
  for (const PlannedPart& part : tensor.parts) all += part.rows;
  const int64_t wanted = std::max<int64_t>(kLeastRows, kSampledWeights / static_cast<int64_t>(tensor.cols()));
  std::vector<SampledRow> rows;
  for (const PlannedPart& part : tensor.parts) {
    if (part.rows == 0) continue;
    const int64_t count = std::clamp<int64_t>(wanted * part.rows / std::max<int64_t>(1, all), 1, part.rows);
    for (int64_t i = 0; i < count; ++i)
      rows.push_back({&part, static_cast<int>((2 * i + 1) * part.rows / (2 * count)),
                      static_cast<double>(part.rows) / static_cast<double>(count)});
  }
  return rows;
}

double weighted_error(std::span<const float> row, std::span<const float> written, std::span<const float> importance) {
  double sum = 0;
  for (size_t i = 0; i < row.size(); ++i) {
    const double lost = double{row[i]} - written[i];
    sum += lost * lost * (importance.empty() ? 1.0 : importance[i]);
  }
  return sum;
}

}  // namespace

std::vector<TensorType> types_to_allocate(bool has_importance) {
  std::vector<TensorType> types;
  for (const TensorType type : kAllocatable) {
    if (has_importance || std::ranges::find(kOnlyWithImportance, type) == std::end(kOnlyWithImportance))
      types.push_back(type);
  }
  return types;
}

std::vector<double> sampled_errors(const PlannedTensor& tensor, std::span<const TensorType> types,
                                   std::span<const float> importance, const std::string& file, Team& team) {
  const std::vector<SampledRow> rows = sample_rows(tensor);
  const size_t cols = tensor.cols();
  const size_t rows_of_matrix = tensor.elements() / cols / stacked_matrices(tensor);
  std::vector<double> errors(rows.size() * types.size());
  std::vector<std::optional<Error>> failures(rows.size());
  team.for_tiles(static_cast<int>(rows.size()), [&](int tile, int) {
    const auto at = static_cast<size_t>(tile);
    const SampledRow& sampled = rows[at];
    const PlannedPart& part = *sampled.part;
    std::vector<float> row(cols), written(cols);
    try {
      read_row(part.from, part.row_from(sampled.row), part.rows_from.first_col, row);
    } catch (const Error& error) {
      failures[at] = error;
      return;
    }
    if (!std::ranges::all_of(row, [](float x) { return std::isfinite(x); })) {
      failures[at] = invalid("{}: tensor {}, row {} has a value that is not finite; the file is damaged", file,
                             part.from.view ? part.from.view->name : tensor.name, part.row_from(sampled.row));
      return;
    }
    const size_t matrix = static_cast<size_t>(part.row_to(sampled.row)) / rows_of_matrix;
    const auto of_columns = importance.empty() ? importance : importance.subspan(matrix * cols, cols);
    for (size_t i = 0; i < types.size(); ++i) {
      double& error = errors[at * types.size() + i];
      const TensorTypeInfo& type = info(types[i]);
      if (types[i] == tensor.type) continue;
      if (cols % type.block_elements != 0) {
        error = std::numeric_limits<double>::infinity();
        continue;
      }
      std::vector<std::byte> blocks(cols / type.block_elements * type.block_bytes);
      if (encode_row(types[i], row, of_columns, blocks) != EncodeResult::kDone) {
        error = std::numeric_limits<double>::infinity();
        continue;
      }
      dequantize(types[i], blocks, written);
      error = sampled.weight * weighted_error(row, written, of_columns);
    }
  });
  for (const auto& failure : failures) {
    if (failure) throw Error(*failure);
  }
  std::vector<double> sums(types.size());
  for (size_t i = 0; i < errors.size(); ++i) sums[i % types.size()] += errors[i];
  return sums;
}

}  // namespace quire
