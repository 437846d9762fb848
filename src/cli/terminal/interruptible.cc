#include "cli/terminal/interruptible.h"

#include "cli/chat/signals.h"

namespace quire {
namespace {

struct Interrupted {};

}  // namespace

void run_interruptible(const std::function<void(const std::function<void()>& check)>& task) {
  try {
    const CatchSignals caught(CatchSignals::Interrupts::kFirst);
    task([] {
      if (chat_signals().interrupted) throw Interrupted();
    });
  } catch (const Interrupted&) {
    die_of_interrupt();
  }
}

}  // namespace quire
