// A model whose layers are in memory some at a time: what it takes for calibration, of models of any size.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>

#include "cli/calibration/rows_file.h"
#include "cli/text/text_chunks.h"
#include "engine/runtime.h"
#include "ops/input_observer.h"

namespace quire {

class LayeredModel {
 public:
  // engine: the model, its threads and its number formats. context: tokens of a chunk. folder: for what layers hand on, 4 bytes
  // for each element of the text's hidden states. Throws Error: the model cannot be loaded, or generates no text.
  LayeredModel(EngineOptions engine, int context, const std::filesystem::path& folder);

  const ModelConfig& config() const { return facts_.config; }
  const Weights& shapes() const { return shapes_; }  // of all weights, which have no data
  int layers() const { return static_cast<int>(config().layers.size()); }
  Compute compute(Activations activations) const { return runtime_.cpu.compute(activations); }
  // Throws Error as the other read_chunks() does.
  TextChunks read_text(const std::string& file, int most) const;

  // The layers from `first` on that have at most `weights` bytes of matrices, and `others` of what other(layer) says; as many as
  // there must be together, in any case.
  LayerRange part_from(int first, size_t weights, size_t others, const std::function<size_t(int layer)>& other) const;

  // Loads these layers, has them compute the whole text, each chunk as a prompt of its own, and frees them. They begin at 0, or
  // where those of the last call have ended. observe(their weights): who sees their inputs. all_logits: as
  // CalibrationSteps::all_logits, of the last layers. progress: in chunks; it may throw to stop.
  void run(const LayerRange& part, const TextChunks& text, bool all_logits,
           const std::function<InputObserver&(const Weights& weights)>& observe,
           const std::function<void(size_t computed, size_t total)>& progress);

 private:
  const EngineOptions options_;
  Runtime runtime_;
  const Checkpoint checkpoint_;
  const ModelFacts facts_;
  const Weights shapes_;
  ModelText text_;
  std::optional<ChatTemplate> chat_template_;
  MemoryPlan plan_;
  RowsFile rows_;
  bool has_warned_ = false;
};

}  // namespace quire
