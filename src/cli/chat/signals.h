// Ctrl-C, a resized window and a stopped process, seen as flags.
#pragma once

#include <signal.h>

#include <atomic>

namespace quire {

// Set by signal handlers, taken back by whoever acts on them.
struct ChatSignals {
  std::atomic<bool> interrupted{false};  // SIGINT
  std::atomic<bool> resized{false};      // SIGWINCH
  std::atomic<bool> continued{false};    // SIGCONT
};
ChatSignals& chat_signals();

// While it lives, SIGINT and the others set their flag, and a closed pipe is an error of write(). Afterwards all is as
// before.
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

// Ends the process the way an uncaught Ctrl-C does, so that a shell sees it. Call it with nothing left to clean up.
void die_of_interrupt();

}  // namespace quire
