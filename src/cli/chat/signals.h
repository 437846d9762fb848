// Ctrl-C, a resized window and a continued process, as flags.
#pragma once

#include <signal.h>

#include <atomic>

namespace quire {

// Set by signal handlers, cleared by the code that acts on them.
struct ChatSignals {
  std::atomic<bool> interrupted{false};  // SIGINT
  std::atomic<bool> resized{false};      // SIGWINCH
  std::atomic<bool> continued{false};    // SIGCONT
};
ChatSignals& chat_signals();

// While it lives, these signals set their flags, and writing to a closed pipe fails with EPIPE. Restores the handlers.
class CatchSignals {
 public:
  enum class Interrupts { kAll, kFirst };  // kFirst: a second Ctrl-C ends the program
  explicit CatchSignals(Interrupts interrupts);
  ~CatchSignals();
  CatchSignals(const CatchSignals&) = delete;
  CatchSignals& operator=(const CatchSignals&) = delete;

 private:
  struct sigaction interrupt_ {
  }, resize_{}, continue_{}, pipe_{};
};

// Ends the process like an uncaught Ctrl-C, so that a shell sees it. Runs no destructors.
void die_of_interrupt();

}  // namespace quire
