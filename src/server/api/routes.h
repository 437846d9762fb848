// The server's paths: which endpoint a method and a path name.
#pragma once

#include <string>
#include <string_view>

#include "server/api/definition.h"
#include "server/api/error.h"
#include "server/api/store_definition.h"

namespace quire {

struct Route {
  const ApiDefinition* api = nullptr;  // one of these three
  const GetDefinition* get = nullptr;
  const StoreDefinition* store = nullptr;
  std::string_view name = {};  // the path in metrics: "/v1/models/{id}"
  std::string argument = {};   // what stands in the place of {id}
};

// Clients differ in how they build paths, so "/v1" at the beginning and slashes at the end are optional everywhere:
// "/chat/completions" and "/v1/models/" are routes. Throws ApiError: 404, or 405 with the allowed methods in `allow`.
Route find_route(std::string_view method, std::string_view path, std::string& allow);

// The decoded path of a request's target: of "/v1/models?x", and of "http://host/v1/models", which proxies send.
std::string path_of_target(std::string_view target);

// The upload that a method and a path name; nullptr: none.
const StoreDefinition* find_upload(std::string_view method, std::string_view path);

// What follows the question mark of a request's target, still encoded.
std::string query_of_target(std::string_view target);

// Whether GetDefinition::needs_key says so. Every other path, known or not, needs a key if the server has any.
bool needs_no_key(std::string_view path);

// The endpoint of a path, or of any path that means the same; nullptr: none has a body.
const ApiDefinition* find_api(std::string_view path);

// The shape of the errors of a path. All paths below /api/ are Ollama's.
ErrorShape error_shape_of(std::string_view path);

}  // namespace quire
