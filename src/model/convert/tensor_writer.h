// Fills the tensors of a GGUF file with rows of a checkpoint.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/team.h"
#include "model/convert/tensor_plan.h"
#include "quant/encode.h"

namespace quire {

// How rows of a tensor become bytes.
struct RowEncoding {
  // Encodes rows of one of the matrices that the tensor stacks, [n, cols] with n up to `rows_together`. The rows may be
  // overwritten. thread: of the team, whose threads call it at once; results must not depend on it.
  using Encode =
      std::function<EncodeResult(size_t matrix, std::span<float> rows, std::span<std::byte> out, int thread)>;
  Encode encode;
  int rows_together = 1;
};
// Each row by itself: encode_row(). importance: of the columns of each matrix, [matrices, cols]; empty: all count the same.
// It must outlive the encoding.
RowEncoding plain_encoding(TensorType type, std::span<const float> importance);

class TensorWriter {
 public:
  // file: the checkpoint, for messages. Both must outlive the writer.
  TensorWriter(std::string file, Team& team) : file_(std::move(file)), team_(team) {}

  // The tensor's bytes, valid until the next call: rows are read, changed and encoded on all threads of the team. A tensor
  // of a GGUF file that keeps its type is not copied. Throws Error naming tensor and row: damaged, not finite, too large.
  std::span<const std::byte> fill(const PlannedTensor& tensor, size_t bytes, const RowEncoding& encoding);

 private:
  void fill(const PlannedTensor& tensor, const PlannedPart& part, const RowEncoding& encoding);

  const std::string file_;
  Team& team_;
  struct Rows {
    std::vector<float> numbers;
    std::vector<std::byte> blocks;
  };
  std::vector<Rows> rows_;  // of each thread
  std::vector<std::byte> bytes_;
};

}  // namespace quire
