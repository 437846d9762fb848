// The inputs of a model's linears over a calibration text, for methods that need Gram matrices.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cli/calibration/layered_model.h"
#include "cli/terminal/progress.h"
#include "quantize/input_collector.h"
#include "quantize/measure_importance.h"

namespace quire {

struct CalibrationFlags {
  std::string file;
  int context = 512, chunks = 128;
};

// --calibrate and its flags, which need it. Returns --calibrate. flags: must outlive the command.
CLI::Option* add_calibration_flags(CLI::App& command, CalibrationFlags& flags);

// Says in the matrix what text it is of.
void name_text(ImportanceMatrix& matrix, const CalibrationFlags& flags, const TextChunks& text);

// Next to the output, where there is room for a model, or where the system keeps temporary files if there is none.
std::filesystem::path folder_of_hidden_states(const std::string& output);

// Layers compute the text some at a time, so that neither the model nor what is known of its inputs must fit into memory:
// callers should ask for layers in their order. Deterministic.
class Calibration {
 public:
  // At a time; a layer that has more is alone.
  static constexpr size_t kWeightBytes = size_t{1} << 30, kKnownBytes = size_t{1} << 30;
  struct Wants {
    int sample_rows = 0;                 // of each matrix's inputs
    bool gram = true;                    // Gram matrices
    bool output = false;                 // also inputs_of_output()
    size_t weight_bytes = kWeightBytes;  // most bytes of matrices,
    size_t known_bytes = kKnownBytes;    // and of Gram matrices and samples
  };
  // engine: the model, its threads and its number formats. folder: for hidden states of the text (LayeredModel). check: may
  // throw to stop. progress: must outlive the object. Throws Error: the model does not load, the text is too short.
  Calibration(EngineOptions engine, const CalibrationFlags& flags, const Wants& wants,
              const std::filesystem::path& folder, Progress& progress, std::function<void()> check);

  // Of a layer's matrix, with what is wanted; null: of none, or nothing is known. Runs the layers up to it.
  std::shared_ptr<const InputStatistics> inputs_of(const Slot& slot);
  // Of the output matrix, which may be the embedding, too. nullptr: they are not wanted.
  std::shared_ptr<const InputStatistics> inputs_of_output();
  // Of the tensors of the model's GGUF file but the output matrix, with the name of the text.
  ImportanceMatrix importance(const FilePlan& file);

 private:
  bool has_one_part() const { return part_from(0).end == model_.layers(); }
  LayerRange part_from(int first) const;
  std::unique_ptr<InputCollector> run(const LayerRange& part, bool with_known, bool with_output);
  void compute(int layer);
  void survey();

  const CalibrationFlags flags_;
  const Wants wants_;
  Progress& progress_;
  const std::function<void()> check_;
  LayeredModel model_;
  const TextChunks text_;
  std::vector<size_t> known_bytes_;         // of each layer: what is wanted of its matrices
  LayerRange part_;                         // the layers that were computed last,
  std::unique_ptr<InputCollector> inputs_;  // and what is known of them
  // Of all layers, without what is wanted of their matrices.
  std::vector<std::unique_ptr<InputCollector>> survey_;
  std::shared_ptr<const InputStatistics> of_output_;
};

}  // namespace quire
