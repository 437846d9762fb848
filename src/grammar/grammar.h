// A compiled grammar: regexes over bytes, and how they follow each other. Made by compile.h, used through matcher.h.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "grammar/limits.h"

namespace quire::grammar {

class Vocabulary;
class Automaton;
struct GrammarParts;

// Immutable but for its cache of automata. Any number of threads may use it.
class Grammar {
 public:
  Grammar(GrammarParts parts, const Limits& limits);
  ~Grammar();

  const GrammarParts& parts() const { return *parts_; }
  const Limits& limits() const { return limits_; }
  // Bytes of memory: of the grammar itself, and of its automaton and masks at this moment.
  size_t memory() const;

  // The automaton that matchers of this vocabulary share: a new one if the last has outgrown Limits::cache_bytes.
  std::shared_ptr<Automaton> automaton(const std::shared_ptr<const Vocabulary>& vocabulary) const;

 private:
  std::unique_ptr<const GrammarParts> parts_;
  Limits limits_;
  SharedPart shared_;
  mutable std::mutex mutex_;
  mutable std::shared_ptr<const Vocabulary> vocabulary_;
  mutable std::shared_ptr<Automaton> automaton_;
};

}  // namespace quire::grammar
