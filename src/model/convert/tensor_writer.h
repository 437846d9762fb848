// Fills the tensors of a GGUF file with rows of a checkpoint.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/team.h"
#include "model/convert/tensor_plan.h"

namespace quire {

class TensorWriter {
 public:
  // file: the checkpoint, for messages. Both must outlive the writer.
  TensorWriter(std::string file, Team& team) : file_(std::move(file)), team_(team) {}

  // The tensor's bytes, valid until the next call: rows are read, changed and encoded on all threads of the team. A tensor
  // of a GGUF file that keeps its type is not copied. importance: of the columns of each matrix in the tensor,
  // [matrices, cols]; empty: all count the same. Throws Error naming tensor and row: damaged, not finite, too large.
  std::span<const std::byte> fill(const PlannedTensor& tensor, size_t bytes, std::span<const float> importance);

 private:
  void fill(const PlannedTensor& tensor, const PlannedPart& part, std::span<const float> importance);

  const std::string file_;
  Team& team_;
  std::vector<std::vector<float>> rows_;  // of each thread
  std::vector<std::byte> bytes_;
};

}  // namespace quire
