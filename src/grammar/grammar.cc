#include "grammar/grammar.h"

#include "grammar/automaton.h"

namespace quire::grammar {

Grammar::Grammar(GrammarParts parts, const Limits& limits)
    : parts_(std::make_unique<const GrammarParts>(std::move(parts))), limits_(limits), shared_(limits.shared) {
  limits_.stop = {};
  shared_.report(2 * (parts_->regexes.memory() + parts_->nodes.memory()));  // an automaton begins with a copy
}

Grammar::~Grammar() = default;

std::shared_ptr<Automaton> Grammar::automaton(const std::shared_ptr<const Vocabulary>& vocabulary) const {
  const std::scoped_lock lock(mutex_);
  if (vocabulary_ != vocabulary || automaton_->outgrown()) {
    automaton_ = std::make_shared<Automaton>(*parts_, vocabulary, limits_);
    vocabulary_ = vocabulary;
  }
  return automaton_;
}

size_t Grammar::memory() const {
  const std::scoped_lock lock(mutex_);
  return parts_->regexes.memory() + parts_->nodes.memory() + (automaton_ ? automaton_->memory() : 0);
}

}  // namespace quire::grammar
