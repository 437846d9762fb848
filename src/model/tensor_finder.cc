#include "model/tensor_finder.h"

#include <algorithm>
#include <optional>

namespace quire {
namespace {

// MLX joins the matrices of all experts, whatever the family calls them.
std::optional<Source> mlx_experts(const Slot& slot, const Source& usual) {
  constexpr std::string_view kExperts = ".experts.";
  const size_t at = usual.name.find(kExperts);
  const bool is_expert =
      slot.tensor == Tensor::kExpertGate || slot.tensor == Tensor::kExpertUp || slot.tensor == Tensor::kExpertDown;
  if (!is_expert || usual.stacked || at == std::string::npos) return std::nullopt;
  Source stacked = usual;
  stacked.stacked = true;
  stacked.name = usual.name.substr(0, at) + (slot.tensor == Tensor::kExpertGate ? ".switch_mlp.gate_proj.weight"
                                             : slot.tensor == Tensor::kExpertUp ? ".switch_mlp.up_proj.weight"
                                                                                : ".switch_mlp.down_proj.weight");
  return stacked;
}

}  // namespace

std::vector<std::string> TensorFinder::other_names(const std::string& name) const {
  if (kind() == FileKind::kGguf) return {};
  if (!spelling_.prefix.empty()) return {std::string(spelling_.prefix) + name};
  const size_t dot = name.find('.');
  // A layer outside the model keeps its first part: without it, it would be a layer of the model.
  if (config_.joined_input && !name.starts_with("model.")) return {"model." + name};
  if (dot == std::string::npos) return {};
  const std::string rest = name.substr(dot + 1);
  return {rest, "model.language_model." + rest, "language_model." + name};
}

const TensorView* TensorFinder::find(const std::string& name) const {
  if (const TensorView* view = checkpoint_.find_tensor(name)) return view;
  for (const std::string& other : other_names(name)) {
    if (const TensorView* view = checkpoint_.find_tensor(other)) return view;
  }
  return nullptr;
}

bool TensorFinder::begins_with(std::string_view name, const std::string& prefix) const {
  return name.starts_with(prefix) ||
         std::ranges::any_of(other_names(prefix), [&](const std::string& other) { return name.starts_with(other); });
}

Source TensorFinder::source_of(const Slot& slot, const std::function<bool(const std::string& name)>& exists) const {
  const Source usual = find_source(config_, slot, kind(), spelling_);
  if (exists(usual.name)) return usual;
  if (const auto stacked = mlx_experts(slot, usual); stacked && exists(stacked->name)) return *stacked;
  if (spelling_.alternatives.empty()) return usual;
  Spelling other = spelling_;
  other.names = spelling_.alternatives;
  const Source alternative = find_source(config_, slot, kind(), other);
  return exists(alternative.name) ? alternative : usual;
}

bool is_buffer(const TensorView& tensor, FileKind kind) {
  const std::string_view name = tensor.name;
  if (kind == FileKind::kGguf) return name.find(".attn_rot_embd") != std::string_view::npos;
  const std::string_view last = name.substr(name.rfind('.') + 1);
  constexpr std::string_view kBuffers[] = {"masked_bias", "causal_mask",     "position_ids", "token_type_ids",
                                           "cos_cached",  "embed_positions", "sin_cached"};
  if (last.ends_with("inv_freq") || std::ranges::find(kBuffers, last) != std::end(kBuffers)) return true;
  // A mask of all pairs of positions under the name of a bias.
  const std::vector<uint64_t>& shape = tensor.shape;
  return (name.ends_with("attn.bias") || name.ends_with("attention.bias")) && shape.size() == 4 && shape[0] == 1 &&
         shape[1] == 1 && shape[2] == shape[3];
}

std::string bias_name(const Source& source) {
  return source.bias.empty() ? source.name.substr(0, source.name.rfind('.')) + ".bias" : source.bias;
}

}  // namespace quire
