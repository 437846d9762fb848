// Waiting for another thread that is about to be ready.
#pragma once

#include <chrono>

namespace quire {

inline void pause_processor() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Spins until done(), for about 50 us: longer than the gaps between the loops of a step. false: it is still not done, and the
// caller should sleep.
template <class Done>
bool spin_until(Done done) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(50);
  do {
    for (int i = 0; i < 64; ++i) {
      if (done()) return true;
      pause_processor();
    }
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

}  // namespace quire
