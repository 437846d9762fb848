// How often this thread has called operator new.
#pragma once

#include <cstdint>

namespace quire {
uint64_t allocations();
}
