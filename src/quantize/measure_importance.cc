#include "quantize/measure_importance.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <span>
#include <vector>

#include "base/error.h"

namespace quire {
namespace {

// Of the first of these kinds of matrices that has inputs: matrices that share a tensor have the same.
std::shared_ptr<const InputStatistics> inputs_of_kinds(std::span<const Tensor> kinds, const PlannedTensor& tensor,
                                                       size_t item, const FindInputs& inputs) {
  const auto count = static_cast<int>(stacked_matrices(tensor));
  for (const Tensor kind : kinds) {
    auto seen = inputs({kind, tensor.layer, static_cast<int>(item), count > 1 ? count : 0});
    if (seen && static_cast<uint64_t>(seen->cols) == tensor.cols()) return seen;  // else it is transposed at load
  }
  return nullptr;
}

}  // namespace

std::shared_ptr<const InputStatistics> inputs_of(const PlannedTensor& tensor, size_t item, const FindInputs& inputs) {
  return inputs_of_kinds(tensor.matrices, tensor, item, inputs);
}

bool is_output(const PlannedTensor& tensor, const ModelConfig& config) {
  return std::ranges::count(tensor.matrices, config.tied_output ? Tensor::kEmbedding : Tensor::kOutput) > 0;
}

ImportanceMatrix measured_importance(const FilePlan& file, const FindInputs& inputs, bool with_output) {
  ImportanceMatrix matrix;
  for (const PlannedTensor& tensor : file.tensors) {
    std::vector<Tensor> kinds = tensor.matrices;
    if (file.config.tied_output) std::ranges::replace(kinds, Tensor::kEmbedding, Tensor::kOutput);
    if (!with_output) std::erase(kinds, Tensor::kOutput);
    const size_t count = stacked_matrices(tensor);
    const auto cols = static_cast<ptrdiff_t>(tensor.cols());
    ImportanceMatrix::Entry entry{std::vector<float>(count * static_cast<size_t>(cols)), std::vector<float>(count)};
    for (size_t item = 0; item < count; ++item) {
      const auto seen = inputs_of_kinds(kinds, tensor, item, inputs);
      if (!seen) continue;
      std::ranges::transform(seen->squares, entry.sums.begin() + static_cast<ptrdiff_t>(item) * cols,
                             [](double sum) { return static_cast<float>(sum); });
      entry.counts[item] = static_cast<float>(seen->rows);
    }
    if (std::ranges::any_of(entry.counts, [](float rows) { return rows > 0; }))
      matrix.entries.emplace(tensor.name, std::move(entry));
  }
  return matrix;
}

void add_importance(ImportanceMatrix& to, const ImportanceMatrix& other) {
  for (const auto& [name, entry] : other.entries) {
    const auto [place, is_new] = to.entries.emplace(name, entry);
    if (is_new) continue;
    ImportanceMatrix::Entry& sum = place->second;
    if (sum.sums.size() != entry.sums.size() || sum.counts.size() != entry.counts.size())
      throw invalid("the importance matrices are of different models: {} has {} inputs in one and {} in another", name,
                    sum.sums.size(), entry.sums.size());
    std::ranges::transform(sum.sums, entry.sums, sum.sums.begin(), std::plus<>());
    std::ranges::transform(sum.counts, entry.counts, sum.counts.begin(), std::plus<>());
    if (!std::ranges::all_of(sum.sums, [](float x) { return std::isfinite(x); }))
      throw invalid("the sums of {} in the importance matrices are too large to be added", name);
  }
  to.datasets.insert(to.datasets.end(), other.datasets.begin(), other.datasets.end());
  to.chunks += other.chunks;
  to.chunk_size = std::max(to.chunk_size, other.chunk_size);
}

}  // namespace quire
