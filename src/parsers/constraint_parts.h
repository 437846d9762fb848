// What constraints on answers are composed of.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "parsers/stage.h"
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
  explicit MarkTexts(const TokenSet& tokens) : tokens_(tokens) {}

  // The text as runs of text and tokens.
  std::vector<ConstraintSource> split(std::string_view text) const;
  // Any text in which the parser finds none of the marks.
  ConstraintSource text_without(const std::vector<std::string_view>& marks) const;

 private:
  const TokenSet& tokens_;
};

}  // namespace quire
