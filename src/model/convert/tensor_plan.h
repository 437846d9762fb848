// The tensors of a GGUF file, and where their rows lie in the checkpoint that it is made of.
#pragma once

#include <optional>
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
};

// checkpoint: of a Hugging Face directory that check_weights() accepts. target: the family whose GGUF names are used.
// type: of matrices; std::nullopt: each keeps its own. Vectors, positions and routers become F32, and so do matrices whose
// parts have several types; Q8_0 matrices whose rows are no whole blocks become F16.
std::vector<PlannedTensor> plan_tensors(const Checkpoint& checkpoint, const ModelConfig& config, const Family& target,
                                        std::optional<TensorType> type);

// Moves the rows of queries and keys, and the weights of their norms, so that pairs that `from` rotates stand where `to`
// expects them.
void reorder_rotated_rows(const ModelConfig& from, const ModelConfig& to, std::vector<PlannedTensor>& tensors);

}  // namespace quire
