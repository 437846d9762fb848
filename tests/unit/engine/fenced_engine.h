// While it lives, engines that do not compute on a device do on a fenced backend (fenced/fenced_backend.h).
#pragma once

#include <cstdlib>

namespace quire::testing {

class FencedEngines {
 public:
  FencedEngines() : sets_(!std::getenv("QUIRE_TEST_DEVICE") && !std::getenv("QUIRE_FENCED_BACKEND")) {
    if (sets_) ::setenv("QUIRE_FENCED_BACKEND", "29", 1);
  }
  ~FencedEngines() {
    if (sets_) ::unsetenv("QUIRE_FENCED_BACKEND");
  }
  FencedEngines(const FencedEngines&) = delete;

 private:
  const bool sets_;
};

}  // namespace quire::testing
