#include "model/loading/weight_counts.h"

#include <algorithm>
#include <variant>

namespace quire {

void WeightCounts::add_matrix(const Slot& slot, uint64_t elements, std::string_view type, size_t bytes) {
  parameters_ += elements;
  elements_[std::string(type)] += elements;
  if (slot.layer >= 0) {
    layer_bytes_[static_cast<size_t>(slot.layer)] += bytes;
  } else {
    (is_input(slot.tensor) ? input_bytes_ : output_bytes_) += bytes;
  }
  add_with_experts(slot, bytes);
  add_decoded(slot, bytes);
}

void WeightCounts::add_vector(const Slot& slot, uint64_t elements) {
  parameters_ += elements;
  add_with_experts(slot, elements * sizeof(float));
}

std::string WeightCounts::main_type() const {
  return std::ranges::max_element(elements_, {}, [](const auto& type) { return type.second; })->first;
}

void WeightCounts::add_with_experts(const Slot& slot, size_t bytes) {
  if (goes_with_experts(slot.tensor)) expert_layer_bytes_[static_cast<size_t>(slot.layer)] += bytes;
}

void WeightCounts::add_decoded(const Slot& slot, size_t bytes) {
  if (slot.tensor == Tensor::kEmbedding) {
    embedding_ = bytes;
  } else if (is_expert(slot.tensor)) {
    const auto& moe = std::get<Moe>(config_.layers[static_cast<size_t>(slot.layer)].ffn);
    if (slot.item < moe.routing.used) experts_ += bytes;  // all experts have the same size
  } else if (!is_table(slot.tensor) && slot.tensor != Tensor::kPooled) {
    decoded_ += bytes;
  }
}

}  // namespace quire
