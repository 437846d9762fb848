// A matrix in a checkpoint: where its rows lie, and how they become panels.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "model/quantized/coded_matrix.h"
#include "model/tensors.h"

namespace quire {

struct MatrixSource {
  Source source;
  int file_rows = 0;  // in the file's matrix, before source.row()
  int item = 0;       // its number in a stack
  TensorType type = TensorType::F32;
  std::span<const std::byte> bytes;          // the file's matrix, if it is plain
  std::shared_ptr<const CodedMatrix> coded;  // in a quantized Hugging Face checkpoint; else null
  int coded_cols = 0;                        // inputs of the file's coded matrix

  // What it is packed to. A transposed matrix of codes becomes float32 numbers: its groups lie across the outputs.
  PackedMatrix describe(int rows, int cols) const;
  // Packs panels [begin, end) into `data`, zeroed memory for them. Throws Error if a coded matrix is damaged.
  void pack(const PackedMatrix& matrix, int begin, int end, std::byte* data) const;
  // "row 5 of matrix 2": of output `row`, for messages.
  std::string place(int row) const;
};

}  // namespace quire
