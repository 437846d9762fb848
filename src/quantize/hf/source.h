// A model as the tensors of a Hugging Face directory, whatever files it is read from.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "json/parse.h"
#include "model/checkpoint.h"
#include "model/config.h"
#include "model/convert/rows.h"
#include "model/tensors.h"
#include "quantize/solve/float_matrix.h"

namespace quire {

struct SourceTensor {
  // One of the model's matrices or vectors that lie in it.
  struct Use {
    Slot slot;
    Source place;                   // which of its rows
    int rows = 0;                   // how many
    Change change = Change::kNone;  // of a vector's numbers, at load
    bool is_matrix = false;
  };

  std::string name;                // in the directory that is written
  TensorType type;                 // F32, F16 or BF16 for weights; others are copied
  std::vector<uint64_t> shape;     // outermost first
  FileMatrix from;                 // [shape[0], shape[1]], or one row
  std::vector<int32_t> row_order;  // row i is row row_order[i] of `from`; empty: as they are
  std::vector<Use> uses;           // empty: the model does not need it
  bool is_bias = false;            // of the matrix that the first use is

  bool is_matrix() const { return shape.size() == 2; }
  uint64_t elements() const;
};

struct ModelSource {
  std::string file;  // the checkpoint, for messages
  ModelConfig config;
  Json config_json;                          // config.json, without quantization_config
  TensorType float_type = TensorType::BF16;  // that most weights have
  std::vector<SourceTensor> tensors;         // in the order of layers; what is before and after them first
  std::vector<std::filesystem::path> files;  // to be copied: tokenizers, templates, licences
  std::vector<std::pair<std::string, std::string>> texts;  // further files: names and contents
  std::vector<std::string> warnings;                       // what the directory lacks or suffers from
  const Checkpoint* checkpoint = nullptr;                  // what `tensors` are views of

  // Throws Error if a file of tensors was changed since it was opened. To be called once they have been read.
  void check_unchanged() const { checkpoint->check_unchanged(); }
  // Drops what was read of the files from the process's memory.
  void release() const;
};

// checkpoint: a Hugging Face directory, whose quantized weights are dequantized, or a GGUF file as open_gguf_source() takes
// it; must outlive the result. Throws Error as loading does without reading weights, and for codes that rows of numbers cannot
// replace: of stacked experts, and for transformed inputs.
ModelSource open_model_source(const Checkpoint& checkpoint);

// F32, F16 or BF16: the type that most elements of matrices have.
TensorType main_float_type(std::span<const SourceTensor> tensors);

// A matrix, or a vector as one row, in float32. Throws Error naming the tensor and the row: damaged, or not finite.
FloatMatrix read_source(const ModelSource& source, const SourceTensor& tensor);

}  // namespace quire
