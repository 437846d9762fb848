#include "base/files/fault_guard.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <mutex>

namespace quire {

// The guarded memory, as the handler sees it: empty if `end` is 0. Ranges are used again but never freed, since the
// handler may run at any time.
struct FaultGuard::Range {
  std::atomic<uintptr_t> begin = 0, end = 0;
  std::atomic<bool> faulted = false, taken = false;
  Range* next = nullptr;
};

namespace {

static_assert(std::atomic<uintptr_t>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

std::atomic<FaultGuard::Range*> first_range = nullptr;
struct sigaction handler_before {};

// Makes the rest of a guarded range zeros. Returns false if no guard covers the address.
bool replace_pages(uintptr_t address) {
  for (auto* range = first_range.load(std::memory_order_acquire); range != nullptr; range = range->next) {
    const uintptr_t end = range->end.load(std::memory_order_acquire);
    const uintptr_t begin = range->begin.load(std::memory_order_acquire);
    // The second look: the range may have been taken for other memory in between.
    if (address < begin || address >= end || range->end.load(std::memory_order_acquire) != end) continue;
    range->faulted.store(true, std::memory_order_release);
    const uintptr_t page = address / static_cast<uintptr_t>(::getpagesize()) * static_cast<uintptr_t>(::getpagesize());
    // Not mmap(): sanitizers replace it by a function that must not be called here.
    return ::syscall(SYS_mmap, page, end - page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) !=
           reinterpret_cast<intptr_t>(MAP_FAILED);
  }
  return false;
}

void on_bus_error(int number, siginfo_t* info, void* context) {
  const int error = errno;
  const bool is_fault = info->si_code > 0;  // else some process has sent the signal
  if (is_fault && replace_pages(reinterpret_cast<uintptr_t>(info->si_addr))) {
    errno = error;
    return;
  }
  if ((handler_before.sa_flags & SA_SIGINFO) != 0) return handler_before.sa_sigaction(number, info, context);
  if (handler_before.sa_handler != SIG_DFL && handler_before.sa_handler != SIG_IGN)
    return handler_before.sa_handler(number);
  std::signal(number, SIG_DFL);
  if (!is_fault) std::raise(number);  // a fault repeats itself
}

void install_handler() {
  struct sigaction action {};
  action.sa_sigaction = on_bus_error;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
  ::sigaction(SIGBUS, nullptr, &handler_before);  // first, since the new handler may run at once
  ::sigaction(SIGBUS, &action, nullptr);
}

FaultGuard::Range* take_range() {
  for (auto* range = first_range.load(std::memory_order_acquire); range != nullptr; range = range->next) {
    if (!range->taken.exchange(true)) return range;
  }
  auto* range = new FaultGuard::Range;
  range->taken = true;
  range->next = first_range.load(std::memory_order_relaxed);
  while (!first_range.compare_exchange_weak(range->next, range, std::memory_order_acq_rel)) {
  }
  return range;
}

}  // namespace

FaultGuard::FaultGuard(const void* begin, size_t bytes) {
  static std::once_flag installed;
  std::call_once(installed, install_handler);
  range_ = take_range();
  range_->faulted.store(false, std::memory_order_relaxed);
  range_->begin.store(reinterpret_cast<uintptr_t>(begin), std::memory_order_release);
  range_->end.store(reinterpret_cast<uintptr_t>(begin) + bytes, std::memory_order_release);
}

FaultGuard::~FaultGuard() {
  range_->end.store(0, std::memory_order_release);
  range_->taken.store(false, std::memory_order_release);
}

bool FaultGuard::faulted() const { return range_->faulted.load(std::memory_order_acquire); }

}  // namespace quire
