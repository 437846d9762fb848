// The checks of what a kernel reads and writes, beyond those of machine.h.
#pragma once

#include "cuda/emulated/wide_products.h"

namespace quire::cuda::emulated {

// Checks the rows of b in shared memory that the product reads now that it ends.
void check_product(const PendingProduct& product, int warp);

}  // namespace quire::cuda::emulated
