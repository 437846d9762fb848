#include "unit/kv/allocations.h"

#include <cstdlib>
#include <new>

namespace {
thread_local uint64_t count = 0;
}

void* operator new(size_t bytes) {
  ++count;
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

uint64_t quire::allocations() { return count; }
