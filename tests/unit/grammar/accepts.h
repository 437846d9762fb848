// Whether a grammar accepts a text, byte by byte.
#pragma once

#include <string_view>

#include "grammar/compile.h"
#include "grammar/matcher.h"

namespace quire::grammar {

inline bool accepts(const GrammarPtr& grammar, std::string_view text) {
  static const std::shared_ptr<const Vocabulary> kBytes = Vocabulary::of_bytes();
  Matcher matcher(kBytes, grammar);
  return matcher.advance_bytes(text) && matcher.accepting();
}

inline bool schema_accepts(std::string_view schema, std::string_view text) {
  return accepts(compile_json_schema(nlohmann::ordered_json::parse(schema)), text);
}

}  // namespace quire::grammar
