// Structured output: what an answer must match.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace quire {

namespace grammar {
class Grammar;
}

// Compiled by Engine::compile(); shared by any number of requests.
using Constraint = std::shared_ptr<const grammar::Grammar>;

struct ConstraintSource {
  enum class Kind {
    kJsonSchema,  // text: a JSON Schema
    kJsonObject,  // any JSON object
    kRegex,       // text: the whole answer matches it
    kChoice,      // the answer is one of `choices`
    kGrammar,     // text: GBNF, llama.cpp's notation
  };
  Kind kind = Kind::kJsonObject;
  std::string text = {};
  std::vector<std::string> choices = {};

  bool operator==(const ConstraintSource&) const = default;
};

}  // namespace quire
