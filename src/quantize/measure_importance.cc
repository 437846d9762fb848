#include "quantize/measure_importance.h"

#include <algorithm>
#include <functional>

#include "base/error.h"

namespace quire {
namespace {

// How many matrices of their own inputs a tensor holds: experts, or heads.
int stacked_matrices(const PlannedTensor& tensor) {
  return tensor.shape.size() > 2 ? static_cast<int>(tensor.shape.front()) : 1;
}

// Of the tensor's matrices of one kind; no sums if it holds none of these inputs.
ImportanceMatrix::Entry entry_of(const PlannedTensor& tensor, Tensor matrix, InputCollector& inputs) {
  const auto cols = static_cast<size_t>(tensor.cols());
  const int count = stacked_matrices(tensor);
  ImportanceMatrix::Entry entry{std::vector<float>(cols * static_cast<size_t>(count)),
                                std::vector<float>(static_cast<size_t>(count))};
  bool has_inputs = false;
  for (int item = 0; item < count; ++item) {
    const InputStatistics* const seen = inputs.of({matrix, tensor.layer, item, count > 1 ? count : 0});
    if (!seen) continue;
    if (static_cast<size_t>(seen->cols) != cols) return {};  // it is transposed when it is loaded
    has_inputs = true;
    std::ranges::transform(seen->squares, entry.sums.begin() + item * static_cast<ptrdiff_t>(cols),
                           [](double sum) { return static_cast<float>(sum); });
    entry.counts[static_cast<size_t>(item)] = static_cast<float>(seen->rows);
  }
  return has_inputs ? entry : ImportanceMatrix::Entry{};
}

}  // namespace

ImportanceMatrix measured_importance(const FilePlan& file, InputCollector& inputs, bool with_output) {
  ImportanceMatrix matrix;
  for (const PlannedTensor& tensor : file.tensors) {
    for (Tensor kind : tensor.matrices) {  // matrices that share a tensor have the same inputs
      if (kind == Tensor::kEmbedding && file.config.tied_output) kind = Tensor::kOutput;
      if (kind == Tensor::kOutput && !with_output) continue;
      ImportanceMatrix::Entry entry = entry_of(tensor, kind, inputs);
      if (entry.sums.empty()) continue;
      matrix.entries.emplace(tensor.name, std::move(entry));
      break;
    }
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
  }
  to.datasets.insert(to.datasets.end(), other.datasets.begin(), other.datasets.end());
  to.chunks += other.chunks;
  to.chunk_size = std::max(to.chunk_size, other.chunk_size);
}

}  // namespace quire
