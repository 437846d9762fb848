// Keeps signals away from the threads of teams and engines: only the program's own threads handle them.
#pragma once

#include <csignal>

namespace quire {

// While it lives, blocks all signals in this thread except those raised by the thread's own faults, which would bypass
// the handlers of debuggers and sanitizers if blocked. Threads started in the meantime inherit the blocked signals for
// good.
class BlockSignals {
 public:
  BlockSignals() {
    sigset_t all;
    sigfillset(&all);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS}) sigdelset(&all, fault);
    pthread_sigmask(SIG_BLOCK, &all, &before_);
  }
  ~BlockSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockSignals(const BlockSignals&) = delete;
  BlockSignals& operator=(const BlockSignals&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace quire
