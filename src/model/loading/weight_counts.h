// What a model's weights take, counted as they are listed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "model/config.h"
#include "model/tensors.h"

namespace quire {

// Bytes are of matrices as packed, and of vectors in float32.
class WeightCounts {
 public:
  // config: must outlive it.
  explicit WeightCounts(const ModelConfig& config)
      : config_(config), layer_bytes_(config.layers.size()), expert_layer_bytes_(config.layers.size()) {}

  // type: the name of its type in the file, or of the quantization method.
  void add_matrix(const Slot& slot, uint64_t elements, std::string_view type, size_t bytes);
  void add_vector(const Slot& slot, uint64_t elements);

  uint64_t parameters() const { return parameters_; }
  std::string main_type() const;  // that of most elements
  // Of a step of one row: the experts that it does not use are not read, and a tied embedding is read as the output matrix.
  uint64_t decode_bytes() const { return decoded_ + experts_ + (config_.tied_output ? embedding_ : 0); }
  uint64_t expert_bytes() const { return experts_; }  // of these, those of experts
  // As in WeightTotals.
  const std::vector<uint64_t>& layer_bytes() const { return layer_bytes_; }
  const std::vector<uint64_t>& expert_layer_bytes() const { return expert_layer_bytes_; }
  uint64_t input_bytes() const { return input_bytes_; }
  uint64_t embedding_bytes() const { return embedding_; }
  uint64_t output_bytes() const { return output_bytes_; }

 private:
  void add_with_experts(const Slot& slot, size_t bytes);
  void add_decoded(const Slot& slot, size_t bytes);

  const ModelConfig& config_;
  uint64_t parameters_ = 0;
  std::map<std::string, uint64_t, std::less<>> elements_;  // by type
  std::vector<uint64_t> layer_bytes_, expert_layer_bytes_;
  uint64_t input_bytes_ = 0, output_bytes_ = 0;
  uint64_t decoded_ = 0, experts_ = 0, embedding_ = 0;
};

}  // namespace quire
