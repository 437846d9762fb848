// Ends a model's thought after a number of tokens, so that the answer comes (Request::thought_budget).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "quire/engine.h"

namespace quire {

// Follows an answer token by token.
class ThoughtWatch {
 public:
  explicit ThoughtWatch(const ThoughtBudget& budget);  // which must outlive it

  // After each token: the text that it completes, with frames around added tokens.
  void add(std::string_view text);
  // The token that must come next: part of the closing that replaces the rest of the thought.
  std::optional<TokenId> forced() const;
  // forced() is not possible here: a constraint does not allow it. Tried again after the next token, unless the closing
  // has begun; then its rest is left out.
  void skip();

 private:
  const ThoughtBudget* budget_;
  bool inside_;
  int spent_ = 0;   // tokens within thoughts
  size_t closing_;  // index of the next token of budget_->closing; its size: none
  bool skipped_ = false;
  std::string tail_;  // the end of the text: a mark may have begun there
};

}  // namespace quire
