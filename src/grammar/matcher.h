// Where a sequence stands in a grammar, and which tokens may come next.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "grammar/grammar.h"
#include "grammar/vocabulary.h"

namespace quire::grammar {

class Automaton;

// A value: a copy is a clone, and costs a few KiB at most. One matcher belongs to one thread at a time; matchers of one
// grammar share its lazily built automaton, which has a lock of its own. fill_mask, is_free, advance, forced_bytes and
// forced_token throw quire::Error (kResource) if one call exceeds Limits::mask_steps; the matcher is then unchanged.
class Matcher {
 public:
  static constexpr int kMaxRollBack = 256;

  Matcher(std::shared_ptr<const Vocabulary> vocabulary, std::shared_ptr<const Grammar> grammar);

  // bits: [vocabulary.mask_words()], bit id % 32 of word id / 32 is set if token id is allowed. End tokens are allowed
  // exactly where the text so far is complete. Returns the number of allowed tokens: 0 is a dead end, which needs a
  // vocabulary that cannot spell what the grammar asks for.
  size_t fill_mask(std::span<uint32_t> bits);
  // False, and nothing changes, if the token is not allowed. After an end token no token is allowed.
  bool advance(TokenId token);
  // Takes back the last tokens: at most kMaxRollBack, and no more than were taken.
  void roll_back(int tokens);

  // Whether the grammar leaves the next token free, as within a string: it allows an eighth of the vocabulary or more.
  bool is_free();
  const Vocabulary& vocabulary() const { return *vocabulary_; }

  bool accepting() const;  // the text so far is complete
  bool must_end() const;   // … and nothing but an end token can follow

  // The bytes that must come next whichever tokens are sampled; empty where there is a choice. At most `limit` bytes.
  std::string forced_bytes(size_t limit = 256);
  // The token that fill_mask allows, if it allows only one: sampling would choose it with probability 1.
  std::optional<TokenId> forced_token();

  // The bytes of a text, as if they were tokens of one byte. Not counted as a token by roll_back, which forgets them with
  // the token before. For checks of whole texts.
  bool advance_bytes(std::string_view text);

 private:
  // After a token. automaton counts from the first one that the matcher had.
  struct Place {
    uint32_t automaton;
    uint32_t state;
    bool accepting, can_go_on;
  };
  Automaton& automaton();
  void set_place(uint32_t state, bool replace);
  void forget();

  std::shared_ptr<const Vocabulary> vocabulary_;
  std::shared_ptr<const Grammar> grammar_;
  std::vector<std::shared_ptr<Automaton>> automata_;  // the last is the current one; earlier ones serve roll_back
  uint32_t first_automaton_ = 0;                      // the number of automata_[0]
  std::vector<Place> places_;                         // the last is the current one
};

}  // namespace quire::grammar
