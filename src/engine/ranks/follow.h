// The processes other than rank 0.
#pragma once

#include "quire/engine.h"

namespace quire {

// Loads the model, and computes what the engine of rank 0 orders until that engine ends. options: as rank 0's, with
// EngineOptions::processes. Throws Error: the model cannot be loaded, the ranks do not fit together, or one of them is gone.
void follow(const EngineOptions& options);

}  // namespace quire
