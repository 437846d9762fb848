// Allocations that are counted, and that fail.
#pragma once

#include <cstdint>

namespace quire {
// How often this thread has called operator new.
uint64_t allocations();
// While there is one, operator new fails once for this thread: after it has succeeded `count` times.
class NoMemoryAfter {
 public:
  explicit NoMemoryAfter(int count);
  ~NoMemoryAfter();
};
// While there is one, operator new fails for all other threads.
class NoMemoryForOthers {
 public:
  NoMemoryForOthers();
  ~NoMemoryForOthers();
};
}  // namespace quire
