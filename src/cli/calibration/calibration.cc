#include "cli/calibration/calibration.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "cli/calibration/calibrate.h"
#include "cli/flags/engine_options.h"
#include "cli/text/chunk_run.h"

namespace quire {
namespace {

// Matrices that read the inputs of another in the same layer.
bool shares_inputs(Tensor tensor) {
  return tensor == Tensor::kK || tensor == Tensor::kV || tensor == Tensor::kUp || tensor == Tensor::kExpertUp ||
         tensor == Tensor::kSharedUp || tensor == Tensor::kAttentionGate || tensor == Tensor::kDeltaK ||
         tensor == Tensor::kDeltaV || tensor == Tensor::kDeltaGate || tensor == Tensor::kDeltaDecay ||
         tensor == Tensor::kDeltaBeta || tensor == Tensor::kKvLatent;
}

}  // namespace

CLI::Option* add_calibration_flags(CLI::App& command, CalibrationFlags& flags) {
  CLI::Option* const calibrate =
      command
          .add_option("--calibrate", flags.file,
                      "text that the model computes first, to see the inputs of its matrices: UTF-8, or a .jsonl file "
                      "whose lines have \"messages\" (chats) or \"text\"")
          ->type_name("FILE");
  command.add_option("--calibration-context", flags.context, "tokens of a chunk of the calibration text")
      ->check(between(3, std::numeric_limits<int>::max()))
      ->needs(calibrate)
      ->capture_default_str();
  command.add_option("--calibration-chunks", flags.chunks, "most chunks of the calibration text; -1: all")
      ->check(check_chunk_count())
      ->needs(calibrate)
      ->capture_default_str();
  return calibrate;
}

Calibration::Calibration(EngineOptions engine, const CalibrationFlags& flags, const Wants& wants, Progress& progress,
                         std::function<void()> check)
    : flags_(flags),
      wants_(wants),
      progress_(progress),
      check_(std::move(check)),
      model_(one_chunk_at_a_time(std::move(engine), flags.context), kScoredRows),
      text_(read_chunks(model_, flags.file, flags.context, flags.chunks)) {}

ImportanceMatrix Calibration::importance(const FilePlan& file) {
  ImportanceMatrix matrix = measured_importance(file, inputs_for(0), flags_.with_output);
  matrix.datasets = {flags_.file};
  matrix.chunks = static_cast<int>(text_.count());
  matrix.chunk_size = flags_.context;
  return matrix;
}

InputCollector& Calibration::inputs_for(int layer) {
  const bool is_there = inputs_ && (wants_.gram_bytes == 0 || (layer >= first_ && layer < end_));
  if (!is_there) run(std::max(0, layer));
  return *inputs_;
}

std::shared_ptr<const InputStatistics> Calibration::inputs_of_output() {
  if (!inputs_) run(0);
  return of_output_;
}

void Calibration::run(int layer) {
  const Model& model = model_.target;
  const bool wants_output = wants_.output && !inputs_ && model.config.has_logits;
  // As many layers from here on as there is memory for, at least one.
  size_t bytes = 0;
  std::map<int, size_t> bytes_of;
  for_each_matrix(model.config, model.weights, [&](const Slot& slot, const Linear& w) {
    const auto cols = static_cast<size_t>(w.weight.cols);
    if (slot.layer >= layer && !shares_inputs(slot.tensor)) bytes_of[slot.layer] += cols * cols * sizeof(float);
  });
  first_ = end_ = layer;
  for (const auto& [of, size] : bytes_of) {
    bytes += size;
    if (of > layer && bytes > wants_.gram_bytes) break;
    end_ = of + 1;
  }
  inputs_.reset();  // its memory is free for the next
  inputs_.emplace(model.config, model.weights, model_.runtime.cpu.compute(Activations::kF32),
                  InputCollector::Wants{[this, wants_output](const Slot& slot) {
                                          if (slot.tensor == Tensor::kOutput) return wants_output;
                                          return wants_.gram_bytes > 0 && slot.layer >= first_ && slot.layer < end_;
                                        },
                                        wants_.sample_rows});
  progress_.stage(wants_.gram_bytes > 0 ? fmt::format("calibrating layers {} to {}", first_, end_ - 1) : "calibrating");
  calibrate(model_, text_, *inputs_, wants_output || flags_.with_output, [this](size_t computed, size_t total) {
    check_();
    progress_.step(computed, total);
  });
  if (wants_output) of_output_ = inputs_->of({Tensor::kOutput});
}

}  // namespace quire
