// Which threads take signals: the program's own, never those of a team or an engine.
#pragma once

#include <csignal>

namespace quire {

// Blocks all signals in this thread while it lives. Threads started meanwhile keep them blocked for good.
class BlockSignals {
 public:
  BlockSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before_);
  }
  ~BlockSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockSignals(const BlockSignals&) = delete;
  BlockSignals& operator=(const BlockSignals&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace quire
