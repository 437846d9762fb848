// A checkpoint's tensors as a model finds them, and which of them it uses.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>

#include "model/checkpoint.h"
#include "model/config.h"
#include "model/quantized/quantization.h"
#include "model/quantized/slot_codes.h"
#include "model/tensor_finder.h"
#include "model/tensors.h"

namespace quire {

class UsedTensors {
 public:
  // Both must outlive it. config: the model's, or that of its predicting_layer(). Throws Error: the quantization is unknown.
  UsedTensors(const Checkpoint& checkpoint, const ModelConfig& config);

  const std::optional<Quantization>& quantization() const { return quantization_; }
  Source source_of(const Slot& slot) const { return source_of_matrix(finder_, slot, quantization_.has_value()); }
  // nullptr: there is none.
  const TensorView* find(const std::string& name) const { return finder_.find(name); }
  // find() for a tensor that is then counted as used.
  const TensorView* use(const std::string& name);

  // Throws Error (kUnsupported): there is a tensor that nobody has used, and that does not belong to another part of the model.
  // Ignoring it would silently run another model.
  void check_all_used() const;
  // What to say of the file's scales of a quantized cache; empty: nothing.
  std::string ignored_scales() const;

 private:
  bool is_ours(std::string_view name) const;
  bool of_predicting_layer(std::string_view name) const;
  bool is_copy_of_model(std::string_view name) const;
  bool is_ignored(const TensorView& view) const;

  const Checkpoint& checkpoint_;
  const ModelConfig& config_;
  const FileKind kind_;
  const Spelling& spelling_;
  const TensorFinder finder_;
  const std::optional<Quantization> quantization_;
  std::unordered_set<std::string> used_;
};

}  // namespace quire
