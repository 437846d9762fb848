// The second matrix of a low-rank change, as it is packed.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/team.h"
#include "base/tensor_type.h"
#include "model/adapter/adapter_files.h"
#include "model/tensors.h"
#include "ops/backend.h"

namespace quire {

// B [outputs / folds, rank, or 32 if it is folded], row after row: LowRank::folds.
struct UpMatrix {
  TensorType type;
  std::vector<std::byte> bytes;
};
// source: which of the file's rows are the outputs. factors [outputs]: of each output; empty: 1, and the file's type stays,
// otherwise float32. Throws Error if a number is not finite; `file` is for messages.
UpMatrix fold_up(const AdapterPair& pair, const Source& source, int outputs, int folds, std::span<const float> factors,
                 const std::string& file);

// Weight decomposition (DoRA: arXiv 2402.09353): for each output, its magnitude divided by the length of its row of
// W + scale * B A. W: the linear's weights as they are packed, dequantized. Throws Error if a row has no length, or the linear
// transforms its inputs, so that its weights are other ones.
std::vector<float> decomposed_factors(const AdapterPair& pair, const Source& source, const Linear& linear,
                                      Backend& backend, Team& team, const std::string& file);

}  // namespace quire
