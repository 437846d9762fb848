// JSON Schemas for generating rather than checking.
#pragma once

#include <string_view>

#include "quire/constraint.h"

namespace quire {

// What the server compiles for a JSON Schema, a JSON text: objects that list their properties have no others, unless the
// schema says so ("additionalProperties": true). A model that may add properties of its own often never ends. `label`:
// what errors call it. Throws Error if the text is not JSON.
ConstraintSource closed_json_schema(std::string_view schema, std::string_view label = "schema");

}  // namespace quire
