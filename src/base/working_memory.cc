#include "base/working_memory.h"

namespace quire {

constinit thread_local WorkingMemory* working_memory = nullptr;

}  // namespace quire
