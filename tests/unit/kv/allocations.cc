#include "unit/kv/allocations.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {
thread_local uint64_t count = 0;
thread_local bool spared = false;
thread_local int left = -1;  // until one fails; -1: none does
std::atomic<bool> failing{false};
}  // namespace

void* operator new(size_t bytes) {
  ++count;
  const bool fails = (failing.load(std::memory_order_relaxed) && !spared) || (left >= 0 && left-- == 0);
  void* memory = fails ? nullptr : std::malloc(bytes);
  return memory ? memory : throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace quire {

uint64_t allocations() { return count; }

NoMemoryAfter::NoMemoryAfter(int count) { left = count; }
NoMemoryAfter::~NoMemoryAfter() { left = -1; }

NoMemoryForOthers::NoMemoryForOthers() { spared = failing = true; }
NoMemoryForOthers::~NoMemoryForOthers() { spared = failing = false; }

}  // namespace quire
