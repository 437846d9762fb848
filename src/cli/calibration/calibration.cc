#include "cli/calibration/calibration.h"

#include <fmt/format.h>

#include <limits>
#include <utility>

#include "cli/flags/engine_options.h"

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

void name_text(ImportanceMatrix& matrix, const CalibrationFlags& flags, const TextChunks& text) {
  matrix.datasets = {flags.file};
  matrix.chunks = static_cast<int>(text.count());
  matrix.chunk_size = flags.context;
}

std::filesystem::path folder_of_hidden_states(const std::string& output) {
  if (output.empty()) return std::filesystem::temp_directory_path();
  const std::filesystem::path path = std::filesystem::absolute(output);
  return path.has_filename() ? path.parent_path() : path.parent_path().parent_path();
}

Calibration::Calibration(EngineOptions engine, const CalibrationFlags& flags, const Wants& wants,
                         const std::filesystem::path& folder, Progress& progress, std::function<void()> check)
    : flags_(flags),
      wants_(wants),
      progress_(progress),
      check_(std::move(check)),
      model_(std::move(engine), flags.context, folder),
      text_(model_.read_text(flags.file, flags.chunks)),
      known_bytes_(static_cast<size_t>(model_.layers())) {
  for_each_matrix(model_.config(), model_.shapes(), [this](const Slot& slot, const Linear& w) {
    if (slot.layer < 0 || shares_inputs(slot.tensor)) return;
    const auto cols = static_cast<size_t>(w.weight.cols), rows = static_cast<size_t>(wants_.sample_rows);
    known_bytes_[static_cast<size_t>(slot.layer)] += (wants_.gram ? cols + rows : rows) * cols * sizeof(float);
  });
}

std::shared_ptr<const InputStatistics> Calibration::inputs_of(const Slot& slot) {
  if (slot.layer < 0) return nullptr;
  compute(slot.layer);
  return inputs_->of(slot);
}

void Calibration::compute(int layer) {
  if (layer < part_.begin) part_ = {};
  while (layer >= part_.end) {
    inputs_.reset();  // its memory is free for the next
    part_ = part_from(part_.end);
    inputs_ = run(part_, layer < part_.end, has_one_part());
  }
}

std::shared_ptr<const InputStatistics> Calibration::inputs_of_output() {
  if (!wants_.output) return nullptr;
  if (!of_output_) survey();
  return of_output_;
}

ImportanceMatrix Calibration::importance(const FilePlan& file) {
  survey();
  const auto find = [this](const Slot& slot) -> std::shared_ptr<const InputStatistics> {
    if (survey_.empty()) return inputs_->of(slot);
    for (const auto& part : survey_) {
      if (auto seen = part->of(slot)) return seen;
    }
    return nullptr;
  };
  ImportanceMatrix matrix = measured_importance(file, find, false);
  name_text(matrix, flags_, text_);
  survey_.clear();
  return matrix;
}

LayerRange Calibration::part_from(int first) const {
  return model_.part_from(first, wants_.weight_bytes, wants_.known_bytes,
                          [this](int layer) { return known_bytes_[static_cast<size_t>(layer)]; });
}

// Runs all layers once for importance and the output matrix. If all fit into memory together, this is the run that gives
// Gram matrices and samples, too.
void Calibration::survey() {
  if (has_one_part()) {
    compute(0);
    return;
  }
  survey_.clear();
  inputs_.reset();
  part_ = {};
  for (LayerRange part; part.end < model_.layers();) {
    part = part_from(part.end);
    survey_.push_back(run(part, false, true));
  }
}

// with_known: with the Gram matrices and samples of the layers. with_output: if these are the last layers, also with the
// Gram matrix of the output matrix; rows then come in smaller steps.
std::unique_ptr<InputCollector> Calibration::run(const LayerRange& part, bool with_known, bool with_output) {
  with_output &= wants_.output && part.end == model_.layers();
  std::unique_ptr<InputCollector> inputs;
  const auto observe = [&](const Weights& weights) -> InputObserver& {
    inputs = std::make_unique<InputCollector>(
        model_.config(), weights, model_.compute(Activations::kF32),
        InputCollector::Wants{[with_grams = wants_.gram && with_known, with_output](const Slot& slot) {
                                if (slot.tensor == Tensor::kOutput) return with_output;
                                return with_grams && slot.layer >= 0;
                              },
                              with_known ? wants_.sample_rows : 0});
    return *inputs;
  };
  const Progress::Inner stage(progress_, part.begin + 1 == part.end
                                             ? fmt::format("calibrating layer {}", part.begin)
                                             : fmt::format("calibrating layers {} to {}", part.begin, part.end - 1));
  model_.run(part, text_, with_output, observe, [this](size_t computed, size_t total) {
    check_();
    progress_.step(computed, total);
  });
  if (with_output) of_output_ = inputs->of({.tensor = Tensor::kOutput});
  return inputs;
}

}  // namespace quire
