// How far a model's output moves when some of its matrices are exchanged for those of another file.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cli/text/text_chunks.h"
#include "engine/loaded_model.h"
#include "engine/single_sequence.h"

namespace quire {

// The matrices of a model's weights by the tensors of its GGUF file, several where a file fuses or stacks them.
using MatricesOfTensors = std::map<std::string, std::vector<PackedMatrix*>, std::less<>>;
MatricesOfTensors matrices_of_tensors(const Checkpoint& checkpoint, const ModelConfig& config, Weights& weights);

// While it lives, tensors of a model are those of another file of the same model.
class ExchangedTensors {
 public:
  // Both must outlive the object and have the tensors.
  ExchangedTensors(const MatricesOfTensors& model, const MatricesOfTensors& other, std::span<const std::string> names);
  ~ExchangedTensors();
  ExchangedTensors(const ExchangedTensors&) = delete;
  ExchangedTensors& operator=(const ExchangedTensors&) = delete;

 private:
  std::vector<std::pair<PackedMatrix*, PackedMatrix>> before_;
};

// Compares the outputs of a model, as its weights are when asked, with what they were for the same chunk of a text. A
// quarter of each chunk is context only.
class OutputProbe {
 public:
  // The model has kScoredRows as max_logits; both must outlive the probe.
  OutputProbe(LoadedModel& model, const TextChunks& text);

  size_t rows() const;  // of each chunk
  // Keeps the probabilities of a chunk, [rows, vocab] in float32, as the reference.
  void set_reference(size_t chunk);
  // The sum over rows of KL(reference || now), in nats.
  double divergence();

 private:
  template <class OfRow>
  void for_rows(OfRow of_row);

  LoadedModel& model_;
  const TextChunks& text_;
  SingleSequence sequence_;
  size_t chunk_ = 0, first_;
  std::vector<float> probabilities_;
  std::vector<double> entropies_, sums_;  // sums of p log p
};

// Texts that the model writes itself, at temperature 1 from a fixed seed: for users who give none. The model has
// kScoredRows as max_logits. progress: in tokens; it may throw to stop.
TextChunks written_by_model(LoadedModel& model, int size, int chunks,
                            const std::function<void(size_t done, size_t total)>& progress);

}  // namespace quire
