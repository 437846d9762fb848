// The arguments of a call as a constraint, in the syntax of each family.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "json/parse.h"
#include "parsers/families.h"
#include "quire/constraint.h"

namespace quire {

// Short for the kinds of ConstraintSource.
inline ConstraintSource sequence(std::vector<ConstraintSource> parts) {
  return {.kind = ConstraintSource::Kind::kSequence, .parts = std::move(parts)};
}
inline ConstraintSource one_of(std::vector<ConstraintSource> parts) {
  if (parts.size() == 1) return std::move(parts.front());
  return {.kind = ConstraintSource::Kind::kOneOf, .parts = std::move(parts)};
}
inline ConstraintSource repeat(ConstraintSource part, uint32_t least, uint32_t most) {
  return {.kind = ConstraintSource::Kind::kRepeat, .parts = {std::move(part)}, .least = least, .most = most};
}
inline ConstraintSource optional(ConstraintSource part) { return repeat(std::move(part), 0, 1); }
inline ConstraintSource empty() { return {.kind = ConstraintSource::Kind::kText}; }
void append(std::vector<ConstraintSource>& parts, std::vector<ConstraintSource> more);

// Texts with marks in them, some of which are tokens of the vocabulary.
class MarkTexts {
 public:
  using Tokens = std::set<std::string, std::less<>>;
  explicit MarkTexts(const Tokens& tokens) : tokens_(tokens) {}

  // The text as runs of text and tokens.
  std::vector<ConstraintSource> split(std::string_view text) const;
  // Any text in which the parser finds none of the marks.
  ConstraintSource text_without(const std::vector<std::string_view>& marks) const;

 private:
  const Tokens& tokens_;
};

// parameters: a JSON Schema of an object, or null: any object. Throws Error (kUnsupported) for keywords that the syntax
// cannot follow exactly; families whose arguments are JSON have none of those.
ConstraintSource call_arguments(const AnswerFormat& format, const Json& parameters, const std::string& label);

}  // namespace quire
