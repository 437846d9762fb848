// Constraints on whole answers: thoughts first, then text or calls in the family's syntax. The family's parser can read
// every answer that they allow.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "parsers/answer_parser.h"
#include "quire/constraint.h"

namespace quire {

struct CallableTool {
  std::string name;
  Json parameters = nullptr;  // a JSON Schema of an object; null: any object
  std::string label = {};     // what errors call the schema: "tools[0].function.parameters"
};

struct AnswerRules {
  enum class Calls : uint8_t { kNever, kMay, kMust };

  Calls calls = Calls::kNever;
  bool several_calls = true;                  // in one answer
  std::vector<CallableTool> tools = {};       // those that may be called
  std::optional<ConstraintSource> text = {};  // for an answer that is not calls; none: any text
  bool may_think = true;                      // a thought may come first
};

// `options`: where in an answer the prompt ends. Throws Error (kUnsupported) for what the family's syntax cannot express
// exactly, such as the pattern of a string that is written without quotes.
ConstraintSource constrain_answer(const AnswerFormat& format, const AnswerOptions& options, const AnswerRules& rules);

}  // namespace quire
