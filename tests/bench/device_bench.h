// The main function of programs that measure operations on a device.
#pragma once

#include <cstddef>
#include <cstdio>
#include <span>

#include "base/error.h"

namespace quire {

// Returns run(arguments), or 1 with what it has thrown on stderr. The first argument is the program's name.
template <class Run>
int run_bench(int count, char** arguments, const Run& run) {
  try {
    return run(std::span<char* const>{arguments, static_cast<size_t>(count)});
  } catch (const Error& error) {
    std::fprintf(stderr, "%s: %s\n", arguments[0], error.what());
    return 1;
  }
}

}  // namespace quire
