#include "quire/structured_output.h"

#include <string>

#include "grammar/schema/closed_schema.h"
#include "json/parse.h"

namespace quire {

ConstraintSource closed_json_schema(std::string_view schema, std::string_view label) {
  Json parsed = parse_json(schema, std::string(label), {.depth = 200});
  return {.kind = ConstraintSource::Kind::kJsonSchema,
          .text = grammar::closed_schema(std::move(parsed)).dump(),
          .label = std::string(label)};
}

}  // namespace quire
