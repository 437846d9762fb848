// Allocations that are counted, and that fail.
#pragma once

#include <cstdint>

namespace quire {
// How often this thread has called operator new.
uint64_t allocations();
// During its lifetime, operator new fails once on this thread, after `count` successes.
class NoMemoryAfter {
 public:
  explicit NoMemoryAfter(int count);
  ~NoMemoryAfter();
};
// During its lifetime, operator new fails on all other threads.
class NoMemoryForOthers {
 public:
  NoMemoryForOthers();
  ~NoMemoryForOthers();
};
}  // namespace quire
