// The matrices of a model in groups that get one type each.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "model/convert/convert.h"

namespace quire {

struct TensorGroup {
  std::string name;             // "blk.3 attn_q, attn_k"; of one tensor, its name without ".weight"
  std::vector<size_t> tensors;  // in the file's order; not empty
};

// "attn_q" for "blk.3.attn_q.weight"; other names without ".weight".
std::string_view name_in_layer(std::string_view name);

// The tensors of the file whose types may be changed (MixedTypes::may_change), each in one group: those of a layer that do
// the same and read the same, such as queries and keys, or gate and up. Fused matrices are a group of their own.
std::vector<TensorGroup> group_tensors(const FilePlan& file);

}  // namespace quire
