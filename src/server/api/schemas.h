// JSON Schemas that /openapi.json refers to as "#/components/schemas/NAME": parts of requests, and whole answers.
#pragma once

#include "server/api/request.h"

namespace quire {

Json component_schemas(const ApiLimits& limits);

}  // namespace quire
