// Act-order: which group an input is in (g_idx), and the order of inputs in which groups are neighbours.
#pragma once

#include <cstdint>
#include <vector>

#include "model/quantized/module_tensors.h"

namespace quire {

struct GroupOrder {
  std::vector<int32_t> permutation;  // as in CodedMatrix; empty: groups are neighbours already
  std::vector<int32_t> slots;        // the inverse: input i of the model is input slots[i] of the rows
};

// group: inputs of a group; the last one may be smaller. A missing tensor means the usual order, unless it is required.
GroupOrder read_group_order(const ModuleTensors& module, std::string_view ending, int group, bool required);

}  // namespace quire
