// Drafts of letters, for tests: each token is a letter.
#pragma once

#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "speculate/lookup/drafts.h"

namespace quire {

struct Guess {
  int match;
  std::string tokens;
  bool operator==(const Guess&) const = default;
};
inline void PrintTo(const Guess& guess, std::ostream* out) { *out << guess.match << ":" << guess.tokens; }
using Guesses = std::vector<Guess>;

inline TokenIds letters(std::string_view text) { return {text.begin(), text.end()}; }

inline Guesses guesses(const Drafts& drafts) {
  Guesses found;
  for (size_t i = 0; i < drafts.size(); ++i)
    found.push_back(Guess{drafts[i].match, {drafts[i].tokens.begin(), drafts[i].tokens.end()}});
  return found;
}

}  // namespace quire
