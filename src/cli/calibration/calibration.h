// The inputs of a model's linears over a calibration text, for methods that need Gram matrices.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "cli/terminal/progress.h"
#include "cli/text/text_chunks.h"
#include "quantize/input_collector.h"

namespace quire {

struct CalibrationFlags {
  std::string file, activations = "auto";
  int context = 512, chunks = 128;
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
  };
  // model: as -m takes it. check: may throw to stop. progress, check: must outlive the object. Throws Error: the model does
  // not load, the text is too short.
  Calibration(const std::string& model, const CalibrationFlags& flags, int threads, const Wants& wants,
              Progress& progress, std::function<void()> check);

  // Runs the model if it has not yet computed the layer's Gram matrices.
  InputCollector& inputs_for(int layer);
  const LoadedModel& model() const { return model_; }
  int chunks() const { return static_cast<int>(text_.count()); }

 private:
  void run(int layer);

  const Wants wants_;
  Progress& progress_;
  const std::function<void()> check_;
  LoadedModel model_;
  const TextChunks text_;
  std::optional<InputCollector> inputs_;
  int first_ = 0, end_ = 0;  // layers whose Gram matrices `inputs_` has
};

}  // namespace quire
