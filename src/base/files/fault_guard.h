// Mapped memory whose pages may become unreadable: the file is cut, or its disk fails.
#pragma once

#include <cstddef>

namespace quire {

// Reading such a page raises SIGBUS, which ends the process. While a guard covers the memory, that page and all after it
// read as zeros instead, and faulted() says so. Every thread may read the memory, and may ask faulted() once it has read.
//
// The first guard installs a handler of SIGBUS. It passes on what no guard covers to the handler before it, or ends the
// process as the system does.
class FaultGuard {
 public:
  // begin: of a page. The memory must stay mapped as long as the guard.
  FaultGuard(const void* begin, size_t bytes);
  ~FaultGuard();
  FaultGuard(const FaultGuard&) = delete;
  FaultGuard& operator=(const FaultGuard&) = delete;

  bool faulted() const;

  struct Range;

 private:
  Range* range_;
};

}  // namespace quire
