// Schemas for generating rather than checking: without properties that nobody asked for.
#pragma once

#include <nlohmann/json.hpp>

namespace quire::grammar {

// The schema with "additionalProperties": false in objects that list their properties and say nothing about others. A
// model that may add properties of its own often never ends; so vLLM and llama.cpp leave them out, too. Whatever matches
// the result matches the schema. A schema with keywords for which that would not hold (allOf, oneOf, not, if, …) comes
// back as it is.
nlohmann::ordered_json closed_schema(nlohmann::ordered_json schema);

}  // namespace quire::grammar
