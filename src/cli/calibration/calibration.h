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

// The folder of the output, which has room for a model; without an output, the system's temporary folder.
std::filesystem::path folder_of_hidden_states(const std::string& output);

// Loads and runs some layers at a time, so that neither the model nor its Gram matrices need fit into memory. Callers should
// ask for layers in their order. Deterministic.
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

  // Statistics of the inputs of a layer's matrix; runs the layers up to it. null: the matrix is of no layer, or had no inputs.
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
  std::vector<size_t> known_bytes_;                      // of each layer's Gram matrices and samples
  LayerRange part_;                                      // the layers that ran last
  std::unique_ptr<InputCollector> inputs_;               // of these layers
  std::vector<std::unique_ptr<InputCollector>> survey_;  // of all layers, without Gram matrices and samples
  std::shared_ptr<const InputStatistics> of_output_;
};

}  // namespace quire
