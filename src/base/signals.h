// Which threads take signals: the program's own, never those of a team or an engine.
#pragma once

#include <csignal>

namespace quire {

// Blocks all signals in this thread while it lives, but those that the thread's own faults raise: blocked, they would
// end the process past the handlers of debuggers and sanitizers. Threads started meanwhile keep them blocked for good.
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
