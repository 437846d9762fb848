// Compiles constraints for the engine and remembers them.
#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <span>

#include "grammar/limits.h"
#include "grammar/vocabulary.h"
#include "quire/constraint.h"
#include "text/tokenizer/tokenizer.h"

namespace quire {

// The tokens of a model with rows of `vocab` logits. Special and unused tokens are not text.
std::shared_ptr<const grammar::Vocabulary> grammar_vocabulary(const Tokenizer& tokenizer, int vocab,
                                                              std::span<const TokenId> end_tokens);

// Thread-safe. Compiling happens on the caller's thread and locks nobody out.
class ConstraintCompiler {
 public:
  static constexpr size_t kMostCached = 64;

  // `tokenizer` must outlive it; nullptr: the model has no vocabulary, and every constraint is refused. vocab: rows of
  // logits have this many entries. end_tokens end an answer. `bytes`: what all constraints may use together.
  ConstraintCompiler(const Tokenizer* tokenizer, int vocab, TokenIds end_tokens, size_t bytes)
      : tokenizer_(tokenizer),
        vocab_(vocab),
        end_tokens_(std::move(end_tokens)),
        memory_(std::make_shared<grammar::SharedMemory>(bytes)) {}

  // Throws Error: kInvalid for a malformed source, kUnsupported for one that Quire cannot honour exactly, kResource for
  // one that exceeds grammar::Limits. Throws std::bad_alloc if the constraints in use leave no memory for another.
  Constraint compile(const ConstraintSource& source);
  // Made at the first call.
  std::shared_ptr<const grammar::Vocabulary> vocabulary();

 private:
  struct Compiled {
    ConstraintSource source;
    Constraint constraint;
  };
  void forget_unused();
  void remember(const ConstraintSource& source, const Constraint& constraint);

  const Tokenizer* const tokenizer_;
  const int vocab_;
  const TokenIds end_tokens_;
  const std::shared_ptr<grammar::SharedMemory> memory_;
  std::once_flag vocabulary_made_;
  std::shared_ptr<const grammar::Vocabulary> vocabulary_;

  std::mutex mutex_;
  std::list<Compiled> compiled_;  // the most recently used first
};

}  // namespace quire
