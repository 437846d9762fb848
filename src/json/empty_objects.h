// Empty objects as PHP's clients write them: its arrays are lists and maps in one, and an empty one becomes "[]".
#pragma once

#include "json/parse.h"

namespace quire {

inline bool is_empty_list(const Json& value) { return value.is_array() && value.empty(); }

// The JSON Schema with an object in place of each empty list that must be one: the schema itself, its properties, its
// definitions, and the schemas in them.
Json with_empty_objects(Json schema);

}  // namespace quire
