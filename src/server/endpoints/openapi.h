// The server's OpenAPI document, GET /openapi.json, generated from the rows of the endpoints.
#pragma once

#include <string>
#include <string_view>

#include "server/api/request/request.h"

namespace quire {

// needs_key: requests need an API key, except to the paths of needs_no_key().
std::string openapi_document(const ApiLimits& limits, std::string_view version, bool needs_key);

// JSON Schema of an endpoint's body, with references into "#/components/schemas". `model` gives the defaults of sampling.
Json request_schema(const ApiDefinition& api, const SamplingDefaults& model = {});

}  // namespace quire
