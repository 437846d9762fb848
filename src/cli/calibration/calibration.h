// The inputs of a model's linears over a calibration text, for methods that need Gram matrices.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "cli/terminal/progress.h"
#include "cli/text/text_chunks.h"
#include "quantize/measure_importance.h"

namespace quire {

struct CalibrationFlags {
  std::string file;
  int context = 512, chunks = 128;
  bool with_output = false;  // the output matrix sees all rows, not some of them, which takes longer
};

// --calibrate and its flags, which need it. Returns --calibrate. flags: must outlive the command.
CLI::Option* add_calibration_flags(CLI::App& command, CalibrationFlags& flags);

// Gram matrices of all layers may be larger than the model, so the text is computed several times, for some layers each
// time: callers should ask for layers in their order. Deterministic.
class Calibration {
 public:
  static constexpr size_t kGramBytes = size_t{1} << 30;
  struct Wants {
    int sample_rows = 0;             // of each matrix's inputs
    size_t gram_bytes = kGramBytes;  // most memory for Gram matrices at a time; 0: none are needed
    bool output = false;             // also inputs_of_output(): the output matrix then sees all rows, once
  };
  // engine: the model, its threads and its number formats. check: may throw to stop. progress: must outlive the object.
  // Throws Error: the model does not load, the text is too short.
  Calibration(EngineOptions engine, const CalibrationFlags& flags, const Wants& wants, Progress& progress,
              std::function<void()> check);

  // Runs the model if it has not yet computed the layer's Gram matrices.
  InputCollector& inputs_for(int layer);
  // Of the output matrix, which may be the embedding, too. nullptr: they are not wanted, or the model has none.
  std::shared_ptr<const InputStatistics> inputs_of_output();
  // Of the tensors of the model's GGUF file, with the name of the text.
  ImportanceMatrix importance(const FilePlan& file);

 private:
  void run(int layer);

  const CalibrationFlags flags_;
  const Wants wants_;
  Progress& progress_;
  const std::function<void()> check_;
  LoadedModel model_;
  const TextChunks text_;
  std::optional<InputCollector> inputs_;
  std::shared_ptr<const InputStatistics> of_output_;
  int first_ = 0, end_ = 0;  // layers whose Gram matrices `inputs_` has
};

}  // namespace quire
