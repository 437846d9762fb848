#include "cli/quantize/output_probe.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "cli/logit_distance.h"
#include "cli/text/chunk_run.h"
#include "model/families.h"
#include "model/tensor_finder.h"

namespace quire {
namespace {

class MatrixCollector : public TensorVisitor {
 public:
  MatrixCollector(const Checkpoint& checkpoint, const ModelConfig& config)
      : finder_(checkpoint, config, spelling_of(checkpoint)) {}

  void matrix(const Slot& slot, int, int, Linear& to) override {
    matrices[finder_.source_of(slot).name].push_back(&to.weight);
  }
  void vector(const Slot&, const std::vector<int>&, Vector&, Change) override {}
  void bias(const Slot&, int, Vector&) override {}

  std::string name_of(const Slot& slot) const { return finder_.source_of(slot).name; }

  MatricesOfTensors matrices;

 private:
  const TensorFinder finder_;
};

// A fixed sequence of numbers in [0, 1): splitmix64 (Steele, Lea and Flood 2014).
class FixedRandom {
 public:
  double next() {
    state_ += 0x9e3779b97f4a7c15;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1p-53;
  }

 private:
  uint64_t state_ = 1;
};

TokenId sample_token(std::span<const float> logits, double u) {
  const double all = log_sum_exp(logits);
  double sum = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    sum += std::exp(logits[i] - all);
    if (sum > u) return static_cast<TokenId>(i);
  }
  return argmax(logits);
}

// log_sum_exp() with exponentials in float32 and their sum in float64: its error is below 1e-6, and it takes a third of the
// time.
double fast_log_sum_exp(std::span<const float> logits) {
  const float top = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float x : logits) sum += std::exp(x - top);
  return top + std::log(sum);
}

}  // namespace

MatricesOfTensors matrices_of_tensors(const Checkpoint& checkpoint, const ModelConfig& config, Weights& weights) {
  MatrixCollector collector(checkpoint, config);
  visit_tensors(config, weights, collector);
  if (config.tied_output) collector.matrices[collector.name_of({Tensor::kEmbedding})].push_back(&weights.output.weight);
  return std::move(collector.matrices);
}

ExchangedTensors::ExchangedTensors(const MatricesOfTensors& model, const MatricesOfTensors& other,
                                   std::span<const std::string> names) {
  for (const std::string& name : names) {
    const auto to = model.find(name), from = other.find(name);
    assert(to != model.end() && from != other.end() && to->second.size() == from->second.size());
    for (size_t i = 0; i < to->second.size(); ++i) {
      PackedMatrix& matrix = *to->second[i];
      assert(matrix.rows == from->second[i]->rows && matrix.cols == from->second[i]->cols);
      before_.emplace_back(&matrix, std::exchange(matrix, *from->second[i]));
    }
  }
}

ExchangedTensors::~ExchangedTensors() {
  for (const auto& [matrix, before] : before_) *matrix = before;
}

OutputProbe::OutputProbe(LoadedModel& model, const TextChunks& text)
    : model_(model), text_(text), sequence_(model), first_(text.size / 4) {}

size_t OutputProbe::rows() const { return text_.size - 1 - first_; }

// Calls of_row(row, logits) for all rows of the chunk, on all threads.
template <class OfRow>
void OutputProbe::for_rows(OfRow of_row) {
  ChunkRun run(sequence_, text_.chunk(chunk_), first_);
  while (const auto scored = run.next()) {
    model_.runtime.team.for_tiles(static_cast<int>(scored->count), [&](int tile, int) {
      const auto i = static_cast<size_t>(tile);
      of_row(scored->position + i - first_, scored->row(i));
    });
  }
}

void OutputProbe::set_reference(size_t chunk) {
  chunk_ = chunk;
  const auto vocab = static_cast<size_t>(model_.target.config.vocab);
  probabilities_.resize(rows() * vocab);
  entropies_.assign(rows(), 0);
  for_rows([&](size_t row, std::span<const float> logits) {
    const auto p = std::span(probabilities_).subspan(row * vocab, vocab);
    const double all = log_sum_exp(logits);
    double sum = 0;
    for (size_t i = 0; i < vocab; ++i) {
      p[i] = static_cast<float>(std::exp(logits[i] - all));
      if (p[i] > 0) sum += double{p[i]} * std::log(double{p[i]});
    }
    entropies_[row] = sum;
  });
}

double OutputProbe::divergence() {
  const auto vocab = static_cast<size_t>(model_.target.config.vocab);
  sums_.assign(rows(), 0);
  for_rows([&](size_t row, std::span<const float> logits) {
    const auto p = std::span(probabilities_).subspan(row * vocab, vocab);
    const double all = fast_log_sum_exp(logits);
    double cross = 0;
    for (size_t i = 0; i < vocab; ++i) cross += double{p[i]} * (logits[i] - all);
    sums_[row] = std::max(0.0, entropies_[row] - cross);
  });
  double sum = 0;
  for (const double row : sums_) sum += row;
  if (!std::isfinite(sum))
    throw invalid("{} gives logits that are not finite, so no types can be chosen by them", model_.info.name);
  return sum;
}

TextChunks written_by_model(LoadedModel& model, int size, int chunks,
                            const std::function<void(size_t done, size_t total)>& progress) {
  const auto& tokenizer = model.target.text.tokenizer;
  const TokenId first = tokenizer && tokenizer->bos() ? *tokenizer->bos() : TokenId{0};
  TextChunks text{{}, static_cast<size_t>(size)};
  const size_t total = text.size * static_cast<size_t>(chunks);
  FixedRandom random;
  SingleSequence sequence(model);
  for (int chunk = 0; chunk < chunks; ++chunk) {
    sequence.clear();
    text.ids.push_back(first);
    for (int i = 1; i < size; ++i) {
      progress(text.ids.size(), total);
      text.ids.push_back(sample_token(sequence.append(std::span(text.ids).last(1), true), random.next()));
    }
  }
  return text;
}

}  // namespace quire
