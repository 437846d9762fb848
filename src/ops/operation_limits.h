// The largest work of a model's steps: what operations allocate their own memory for, once.
#pragma once

#include <array>
#include <vector>

#include "ops/linear.h"
#include "ops/low_rank.h"

namespace quire {

struct OperationLimits {
  int max_rows = 0;       // in a step
  int max_positions = 0;  // in a sequence
  int max_picked = 0;     // of pick()
  int ranks = 1;          // devices that share the work (Backend::connect())

  struct InputRows {  // prepare(), and low_rank_inputs()
    int rows, cols;
  };
  std::vector<InputRows> inputs;
  InputForms forms;
  struct HeadInputs {  // project_heads()
    int heads = 0, cols = 0;
  };
  HeadInputs heads;
  struct AttentionHeads {
    int heads, kv_heads, value_dim;
  };
  std::vector<AttentionHeads> attention;
  struct Experts {  // the largest of any layer
    int experts = 0, used = 0;
    int hidden = 0, inner = 0;
  };
  Experts experts;
};

// What add_low_rank() keeps between its products of a step of max_rows rows: blocks of up to 4 folds, or whole rows, each
// product's with some padding.
inline std::array<OperationLimits::InputRows, 2> low_rank_inputs(int max_rows, int max_rank) {
  return {{{4 * kMostChanged * max_rows, kBlockInputs}, {kMostChanged * max_rows, max_rank + kBlockInputs}}};
}

}  // namespace quire
