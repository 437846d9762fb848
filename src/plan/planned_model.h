// A model as a plan sees it: its configuration, how its weights are stored, and what its steps cost. It comes from the
// headers of a model's files, from a configuration alone, or from a shape given by hand; no weight is read.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/tensor_type.h"
#include "kernels/types.h"
#include "model/checkpoint.h"
#include "model/config.h"
#include "plan/work.h"
#include "quant/panel_format.h"

namespace quire {

// How the matrices of a model without files would be stored.
struct WeightStorage {
  TensorType type = TensorType::BF16;  // rows that are not whole blocks of it: Q8_0, or F16
  double bits = 0;  // of a weight, whatever its type: for formats that have no name here; 0: of the type
};

// What the plan must know of whoever computes.
struct ComputeForm {
  Activations activations = Activations::kBf16;  // what the inputs of linears are rounded to
  KvType kv = KvType::kBf16;
  bool packed = false;  // weights take what Quire's kernels read (kernels/packed.h), not what the file holds
};

struct WeightsOfType {
  std::string type;  // a type, a number of bits, or a quantization method
  uint64_t weights = 0;
  double bytes = 0;
};

struct PlannedModel {
  std::string name;
  ModelConfig config;
  std::vector<WeightsOfType> types;  // most bytes first
  ModelWork work;
  // What Quire's kernels would read of each matrix of a layer (-1: of the whole model); empty if they have no such format.
  std::map<std::pair<Tensor, int>, PanelFormat> formats;
  std::vector<std::string> assumptions;  // what the files do not say, or Quire does not know: sentences

  double weight_bytes() const;
  uint64_t parameters() const;
};

// Throws Error: a file is damaged, or of an unknown family whose shape cannot be told; the message names the field.
PlannedModel plan_checkpoint(const Checkpoint& checkpoint, const ComputeForm& form);

// file: config.json of a Hugging Face model. storage: of the matrices; without one, that of the file's torch_dtype.
// Throws Error likewise.
PlannedModel plan_config_file(const std::string& file, const std::optional<WeightStorage>& storage,
                              const ComputeForm& form);

// config: validated.
PlannedModel plan_config(std::string name, ModelConfig config, const WeightStorage& storage, const ComputeForm& form);

// A name of named_shapes() or numbers, as "llama-2-70b", "llama-2-70b,kv-heads=64" or
// "layers=32,hidden=4096,heads=32,ffn=11008". Other numbers are by default: kv-heads that of heads, head-dim
// hidden / heads, ffn 4 * hidden, vocab 32000, context 4096. Throws Error that says which key or number is wrong.
ModelConfig parse_shape_config(std::string_view text);
std::vector<std::string_view> shape_names();

}  // namespace quire
