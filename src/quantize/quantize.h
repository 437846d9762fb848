// Writes a model as a GGUF file of fewer bits a weight.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/team.h"
#include "model/checkpoint.h"
#include "model/convert/convert.h"
#include "quantize/importance_matrix.h"
#include "quantize/input_statistics.h"
#include "quantize/mixes.h"

namespace quire {

// The type of the tensors whose names in the GGUF file a regular expression is found in.
struct TypeOverride {
  std::string pattern;
  TensorType type;
};

struct QuantizeOptions {
  const Mix* mix = nullptr;
  bool pure = false;                         // one type for all matrices, without the mix's exceptions
  std::optional<TensorType> output_type;     // of the output matrix (output.weight)
  std::optional<TensorType> embedding_type;  // of token embeddings; with a tied output also of that
  std::vector<TypeOverride> overrides;       // the first that matches counts
  // Types of all tensors whose types may be changed, by name, in place of the mix and its exceptions; empty: the mix
  // decides. Their blocks fit the rows.
  std::map<std::string, TensorType, std::less<>> types = {};
  const ImportanceMatrix* importance = nullptr;  // null: all inputs count the same
  std::string importance_file;                   // its name, for the metadata
  // What is known of the inputs of matrix `item` of a tensor, with its Gram matrix: codes are then chosen with error
  // feedback. Null results: nothing. Empty: no feedback.
  std::function<std::shared_ptr<const InputStatistics>(const PlannedTensor& tensor, size_t item)> inputs = {};
  std::string name;             // general.name of a file that is made of a directory
  bool measure_errors = false;  // sets TensorChange::error, which takes a little longer
};

// What happens to a tensor.
struct TensorChange {
  std::string name;
  std::string from;  // its type, or "GPTQ": the method of a quantized directory
  TensorType to;
  uint64_t elements = 0, bytes = 0;  // bytes: as written
  bool has_importance = false;
  // ||W - Q|| / ||W|| of the weights as written, 0 for a copy; nullopt unless write_quantized() has measured it.
  std::optional<double> error = std::nullopt;
};

struct QuantizePlan {
  FilePlan file;                      // with the types of `changes`
  std::vector<TensorChange> changes;  // of all tensors, in the file's order
  std::vector<std::string> warnings;  // what was asked for and is not done, and what the result may suffer from

  uint64_t bytes() const;          // of all tensors
  double bits_per_weight() const;  // of them
};

// Decides everything without reading weights. Throws Error: what plan_file() refuses, a pattern that is not a regular
// expression or matches nothing, an importance matrix of another model. The checkpoint must outlive the plan.
QuantizePlan plan_quantization(const Checkpoint& from, const QuantizeOptions& options);

// Carries the plan out: write_file(). options: as for the plan. progress: in tensors; it may throw to stop. partial: what to
// continue and what to keep, as for write_file(); null: nothing. The bytes are those of a run that was never interrupted.
void write_quantized(const Checkpoint& from, QuantizePlan& plan, const QuantizeOptions& options,
                     const std::filesystem::path& to, Team& team,
                     const std::function<void(size_t written, size_t total)>& progress,
                     PartialOutput* partial = nullptr);

}  // namespace quire
