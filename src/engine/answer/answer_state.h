// What the next token of an answer depends on, besides its request, its tokens and the logits.
#pragma once

#include <optional>

#include "engine/answer/thought_watch.h"
#include "engine/request_state.h"
#include "grammar/matcher.h"
#include "sampling/dry.h"
#include "text/detokenizer.h"

namespace quire {

// A value: a copy can be advanced by drafts to see what their rows are sampled with. What it refers to belongs to the
// request.
struct AnswerState {
  std::optional<Detokenizer> detokenizer;   // none: the model has no vocabulary
  std::optional<grammar::Matcher> matcher;  // the request's constraint after the answer so far
  TokenIds counted;                         // SampleRow::counted, under a constraint with penalties
  std::optional<DryRun> dry_run;            // after the answer so far; none: no DRY, or no sequence breakers
  std::optional<ThoughtWatch> thoughts;     // none: they may be of any length

  AnswerState(const RequestState& request, const Tokenizer* tokenizer);

  // No constraint, breakers of DRY or budget for thoughts: rows depend on the tokens alone.
  bool is_plain() const { return !matcher && !dry_run && !thoughts; }
  // The only token that the constraint allows, if nothing else in the request depends on the logits or on each draw: it
  // need not be sampled. generated: tokens of the answer so far.
  std::optional<TokenId> forced_token(const RequestState& request, int generated);
  // All but the text: detokenizer and thoughts. Throws Error (kResource) if the constraint needs too much.
  void take(const RequestState& request, TokenId token);
  // With the text.
  void take_draft(const RequestState& request, TokenId token);

 private:
  void count(TokenId token);
};

}  // namespace quire
