// The largest work of a model's steps: what operations allocate their own memory for, once.
#pragma once

#include <vector>

#include "ops/linear.h"

namespace quire {

struct OperationLimits {
  int max_rows = 0;       // in a step
  int max_positions = 0;  // in a sequence

  struct InputRows {  // prepare(), and add_low_rank() between its products
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

}  // namespace quire
