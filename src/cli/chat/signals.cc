#include "cli/chat/signals.h"

namespace quire {
namespace {

static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler may only touch lock-free atomics");

ChatSignals g_signals;  // signal handlers can reach only globals

void on_signal(int number) {
  if (number == SIGINT) g_signals.interrupted = true;
  if (number == SIGWINCH) g_signals.resized = true;
  if (number == SIGCONT) g_signals.continued = true;
}

void install(int number, void (*handler)(int), int flags, struct sigaction* before) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  sigemptyset(&action.sa_mask);
  sigaction(number, &action, before);
}

}  // namespace

ChatSignals& chat_signals() { return g_signals; }

CatchSignals::CatchSignals(Interrupts interrupts) {
  g_signals.interrupted = false;
  install(SIGINT, on_signal, interrupts == Interrupts::kFirst ? static_cast<int>(SA_RESETHAND) : 0, &interrupt_);
  install(SIGWINCH, on_signal, SA_RESTART, &resize_);
  install(SIGCONT, on_signal, SA_RESTART, &continue_);
  install(SIGPIPE, SIG_IGN, 0, &pipe_);
}

CatchSignals::~CatchSignals() {
  sigaction(SIGINT, &interrupt_, nullptr);
  sigaction(SIGWINCH, &resize_, nullptr);
  sigaction(SIGCONT, &continue_, nullptr);
  sigaction(SIGPIPE, &pipe_, nullptr);
}

void die_of_interrupt() {
  install(SIGINT, SIG_DFL, 0, nullptr);
  raise(SIGINT);
}

}  // namespace quire
