// A draft of letters, for tests.
#pragma once

#include <ostream>
#include <string>

namespace quire {

struct Guess {
  int match;
  std::string tokens;
  bool operator==(const Guess&) const = default;
};
inline void PrintTo(const Guess& guess, std::ostream* out) { *out << guess.match << ":" << guess.tokens; }

}  // namespace quire
