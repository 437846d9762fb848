// The program's operator new, which counts what work with a limit allocates (working_memory.h). Over-aligned types, which
// no request has, keep the library's. Not part of quire_base.
#include <malloc.h>

#include <cstdlib>
#include <new>

#include "base/working_memory.h"

namespace {

// As the allocator has it: with what it rounds up, and the size in front.
size_t bytes_of(void* memory) { return malloc_usable_size(memory) + sizeof(size_t); }

}  // namespace

void* operator new(size_t bytes) {
  void* const memory = std::malloc(bytes > 0 ? bytes : 1);
  if (memory == nullptr) throw std::bad_alloc();
  if (quire::working_memory != nullptr) quire::working_memory->add(bytes_of(memory));
  return memory;
}

void operator delete(void* memory) noexcept {
  if (quire::working_memory != nullptr && memory != nullptr) quire::working_memory->subtract(bytes_of(memory));
  std::free(memory);
}

void* operator new(size_t bytes, const std::nothrow_t&) noexcept try {
  return ::operator new(bytes);
} catch (const std::bad_alloc&) {
  return nullptr;
}

// The sanitizers' own would not be counted.
void* operator new[](size_t bytes) { return ::operator new(bytes); }
void* operator new[](size_t bytes, const std::nothrow_t& tag) noexcept { return ::operator new(bytes, tag); }
void operator delete(void* memory, size_t) noexcept { ::operator delete(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { ::operator delete(memory); }
void operator delete[](void* memory) noexcept { ::operator delete(memory); }
void operator delete[](void* memory, size_t) noexcept { ::operator delete(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { ::operator delete(memory); }
