// The guesses of a drafter that looks only at tokens.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "quire/types.h"

namespace quire {

// Guesses of the next tokens of one sequence, best first. No two begin with the same token. Keeps its memory when
// cleared, so a step allocates nothing.
class Drafts {
 public:
  struct Draft {
    int match;  // the number of last tokens that the drafter recognized: the more, the likelier the draft is right
    std::span<const TokenId> tokens;
  };

  void clear();
  // Adds a draft of no tokens; push() gives it tokens.
  void start(int match);
  void push(TokenId token);

  size_t size() const { return starts_.size(); }
  bool empty() const { return starts_.empty(); }
  Draft operator[](size_t i) const;  // valid until the next change
  // Whether a draft begins with this token.
  bool has_first(TokenId token) const;

 private:
  struct Start {
    size_t token;
    int match;
  };

  TokenIds tokens_;  // the tokens of all drafts, one after the other
  std::vector<Start> starts_;
};

}  // namespace quire
