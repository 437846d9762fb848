#include "model/loading/used_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "model/families.h"

namespace quire {
namespace {

// What a model that also sees or hears has beside its text model, and layers for predicting several tokens.
constexpr std::string_view kOtherModalities[] = {"model.visual.",
                                                 "visual.",
                                                 "vision_tower.",
                                                 "model.vision_tower.",
                                                 "mtp.",
                                                 "multi_modal_projector.",
                                                 "model.multi_modal_projector.",
                                                 "audio_tower.",
                                                 "model.audio_tower."};

// Whether a name is `pattern`, in which {} stands for a number, and * at the end for anything.
bool matches(std::string_view name, std::string_view pattern) {
  if (pattern.ends_with('*')) return name.starts_with(pattern.substr(0, pattern.size() - 1));
  const size_t mark = pattern.find("{}");
  if (mark == std::string_view::npos) return name == pattern;
  const std::string_view tail = pattern.substr(mark + 2);
  if (!name.starts_with(pattern.substr(0, mark)) || !name.ends_with(tail) || name.size() <= mark + tail.size())
    return false;
  const std::string_view number = name.substr(mark, name.size() - mark - tail.size());
  return number.find_first_not_of("0123456789") == std::string_view::npos;
}

}  // namespace

UsedTensors::UsedTensors(const Checkpoint& checkpoint, const ModelConfig& config)
    : checkpoint_(checkpoint),
      config_(config),
      kind_(checkpoint.gguf() ? FileKind::kGguf : FileKind::kHf),
      spelling_(spelling_of(checkpoint)),
      finder_(checkpoint, config, spelling_),
      quantization_(checkpoint.hf() ? read_quantization(*checkpoint.hf()) : std::nullopt) {}

const TensorView* UsedTensors::use(const std::string& name) {
  const TensorView* const view = find(name);
  if (view) used_.insert(view->name);
  return view;
}

void UsedTensors::check_all_used() const {
  for (const TensorView& view : checkpoint_.tensors()) {
    if (!used_.contains(view.name) && is_ours(view.name) && !is_ignored(view)) {
      throw unsupported("{}: unexpected tensor {}: Quire's {} architecture does not use it", checkpoint_.file(),
                        view.name, config_.architecture);
    }
  }
}

std::string UsedTensors::ignored_scales() const {
  const auto is_scale = [&](const TensorView& t) { return quantization_ && quantization_->ignores(t.name); };
  const auto count = std::ranges::count_if(checkpoint_.tensors(), is_scale);
  if (count == 0) return {};
  return fmt::format(
      "{}: {} tensors with scales of quantized keys, values or outputs, such as {}, are not used; --kv-cache-dtype "
      "says "
      "how keys and values are stored",
      checkpoint_.file(), count, std::ranges::find_if(checkpoint_.tensors(), is_scale)->name);
}

// Whether to load the tensor. A layer for multi-token prediction is loaded on its own, without the model around it.
bool UsedTensors::is_ours(std::string_view name) const {
  if (!config_.joined_input) return true;
  return finder_.begins_with(name, layer_prefix(kind_, config_.joined_input->layer, spelling_.predicting));
}

// Layers for multi-token prediction follow those of the model.
bool UsedTensors::of_predicting_layer(std::string_view name) const {
  for (int i = 0; i < config_.predicting_layers; ++i) {
    if (finder_.begins_with(name, layer_prefix(kind_, config_.first_predicting + i))) return true;
  }
  return false;
}

// The layer's copies of the model's matrices.
bool UsedTensors::is_copy_of_model(std::string_view name) const {
  return std::ranges::any_of(std::array{Tensor::kEmbedding, Tensor::kOutput}, [&](Tensor tensor) {
    const std::string own = source_of({tensor}).name;
    return finder_.begins_with(name, own.substr(0, own.rfind('.') + 1));
  });
}

bool UsedTensors::is_ignored(const TensorView& view) const {
  const std::string_view name = view.name;
  if (quantization_ && quantization_->ignores(name)) return true;
  if (config_.joined_input) return is_copy_of_model(name);
  if (of_predicting_layer(name)) return true;
  if (config_.tied_output && &view == find(source_of({Tensor::kOutput}).name)) return true;
  if (is_buffer(view, kind_)) return true;
  if (kind_ == FileKind::kHf && checkpoint_.hf()->config.has("text_config") &&
      std::ranges::any_of(kOtherModalities, [&](std::string_view prefix) { return name.starts_with(prefix); }))
    return true;
  return std::ranges::any_of(spelling_.ignored, [&](std::string_view pattern) { return matches(name, pattern); });
}

}  // namespace quire
