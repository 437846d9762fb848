// The mixes of types that llama.cpp's files have: Q4_K_M and the like.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/tensor_type.h"
#include "model/config.h"
#include "model/convert/tensor_plan.h"

namespace quire {

struct Mix {
  std::string_view name;  // as llama-quantize spells it
  TensorType type;        // of most matrices
  int file_type;          // general.file_type
};
std::span<const Mix> mixes();

// In either case; Q3_K, Q4_K and Q5_K are the _M mixes. Throws Error that lists them.
const Mix& find_mix(std::string_view name);

// The mix that names a file whose matrices mostly have this type; F16 if there is none.
const Mix& mix_of(TensorType type);

// Decides the types of a model's tensors under a mix, by what they do. Counts the tensors that it is asked about, so each
// must be passed once, in the order of layers.
class MixedTypes {
 public:
  // tensors: all of the file.
  MixedTypes(const Mix& mix, const ModelConfig& config, std::string_view architecture, bool has_importance,
             std::span<const PlannedTensor> tensors);

  // Whether the type of a tensor may be changed: it holds matrices, and none that are small or sensitive.
  static bool may_change(const PlannedTensor& tensor);

  // The type of a tensor that may be changed, whether or not its rows are whole blocks of it.
  TensorType type_of(const PlannedTensor& tensor);

 private:
  uint32_t circumstances(int index, int count) const;

  const Mix& mix_;
  bool has_importance_, is_tied_;
  int experts_, queries_per_key_;
  bool is_falcon_, is_70b_;
  int layers_, value_count_ = 0;
  int values_ = 0, downs_ = 0, gates_ = 0, ups_ = 0;  // seen so far
};

}  // namespace quire
