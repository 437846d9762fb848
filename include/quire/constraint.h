// Structured output: what an answer must match.
#pragma once

#include <cstdint>
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
    // To compose several:
    kText,         // text: exactly this
    kToken,        // text: the added token with this spelling ("<tool_call>"); without such a token the text
    kTextWithout,  // any text that contains none of `choices`, whose first visible character is none of `text`
    kSequence,     // parts, one after the other
    kOneOf,        // one of the parts
    kRepeat,       // the only part, at least `least` and at most `most` times
    kReserve,      // nothing; but nowhere in the constraint may the added tokens `choices` be text (as kToken they may)
  };
  static constexpr uint32_t kUnbounded = UINT32_MAX;

  Kind kind = Kind::kJsonObject;
  std::string text = {};
  std::vector<std::string> choices = {};
  std::vector<ConstraintSource> parts = {};
  uint32_t least = 0, most = 1;
  std::string label = {};  // what errors call this part: "tools[0].function.parameters"; may be empty

  bool operator==(const ConstraintSource&) const = default;
};

}  // namespace quire
