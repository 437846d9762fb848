// Ends a step that fails while its operations are called.
#pragma once

#include <exception>

#include "ops/backend.h"

namespace quire {

// If an exception ends the scope, the operations called in it are discarded: the next step would run them with its own.
class DiscardOnError {
 public:
  explicit DiscardOnError(Operations& ops) : ops_(ops), exceptions_(std::uncaught_exceptions()) {}
  ~DiscardOnError() {
    if (std::uncaught_exceptions() > exceptions_) ops_.discard();
  }
  DiscardOnError(const DiscardOnError&) = delete;
  DiscardOnError& operator=(const DiscardOnError&) = delete;

 private:
  Operations& ops_;
  const int exceptions_;
};

}  // namespace quire
