// The tensors of a GGUF file, and where their rows lie in the checkpoint that it is made of.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/checkpoint.h"
#include "model/convert/rows.h"
#include "model/families.h"

namespace quire {

// Rows of one matrix, or a bias as a matrix of one column.
struct PlannedPart {
  Slot slot;
  FileMatrix from;
  Source rows_from;  // which rows of `from`
  Source rows_to;    // which rows of the planned tensor
  int rows, cols;
  int row_offset = 0;  // added to rows_to: stacked matrices follow each other
  Change change = Change::kNone;
  // Rows of heads, of which the first `rotated` get another order; 0: none do.
  int head = 0, rotated = 0;
  RopeKind order = RopeKind::kHalves;

  int row_from(int i) const { return rows_from.row(i); }
  int row_to(int i) const;
};

struct PlannedTensor {
  std::string name;
  TensorType type;
  std::vector<uint64_t> shape;  // outermost first
  std::vector<PlannedPart> parts;
  // Which of the model's matrices lie in it, one of each kind: several where a file fuses them. Empty: vectors, and
  // tensors that the model does not need.
  std::vector<Tensor> matrices = {};
  int layer = -1;  // of the matrices

  uint64_t cols() const { return shape.back(); }
  uint64_t elements() const;
};

// The tensors of a GGUF file for a Hugging Face directory that check_weights() accepts. target: the family whose GGUF
// names are used. Each matrix keeps its type; F16 stands for quantized ones. Vectors and small tables become F32, and so
// do matrices whose parts have several types. Throws Error for quantized weights that rows of numbers cannot replace.
std::vector<PlannedTensor> plan_tensors(const Checkpoint& checkpoint, const ModelConfig& config, const Family& target);

// How many matrices of inputs of their own a tensor stacks: experts, or heads.
size_t stacked_matrices(const PlannedTensor& tensor);

// The tensors of a GGUF file as they are.
std::vector<PlannedTensor> plan_copies(const Checkpoint& checkpoint, const ModelConfig& config);

// Tables of positions and segments, and routers of experts: always F32, as llama.cpp expects.
bool is_small_table(Tensor tensor);

// `wanted`, or the type that llama.cpp writes instead for rows that are not whole blocks of it, or whose blocks would not
// fit either: F16 (tensor_type_fallback in llama-quant.cpp, b11434).
TensorType fitting_type(TensorType wanted, uint64_t cols);

// Moves the rows of queries and keys, and the weights of their norms, so that pairs that `from` rotates stand where `to`
// expects them.
void reorder_rotated_rows(const ModelConfig& from, const ModelConfig& to, std::vector<PlannedTensor>& tensors);

}  // namespace quire
