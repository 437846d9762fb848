// The OpenAPI document of the server: what GET /openapi.json gives, written from the table that requests are read with.
#pragma once

#include <string>
#include <string_view>

#include "server/api_request.h"

namespace quire {

std::string openapi_document(const ApiLimits& limits, std::string_view version);

// JSON Schema of an API's body, with references into "#/components/schemas".
Json request_schema(Api api);

}  // namespace quire
