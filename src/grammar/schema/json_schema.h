// JSON Schema to grammar. Every keyword is either honoured exactly or refused with its name and JSON pointer.
//
// A subschema is compiled as a set: the schemas that its value must satisfy at once, since $ref, allOf and several bases of
// a property all intersect. The set grows by what they refer to, then branches over anyOf and oneOf, and what remains has
// one kind of constraint per type of value. Equal sets are one rule, so recursive schemas end.
#pragma once

#include <nlohmann/json.hpp>

#include "grammar/char_set.h"
#include "grammar/limits.h"
#include "grammar/parts.h"

namespace quire::grammar {

// Both throw quire::Error.
NodeId add_json_schema(GrammarParts& parts, CharEncoder& encoder, const nlohmann::ordered_json& schema,
                       const Limits& limits, Texts texts);
NodeId add_json_object(GrammarParts& parts, CharEncoder& encoder, const Limits& limits);

}  // namespace quire::grammar
