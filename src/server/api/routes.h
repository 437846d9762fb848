// The server's paths: which endpoint a method and a path name.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "server/api/error.h"
#include "server/api/request.h"

namespace quire {

// An endpoint whose body has parameters.
struct ApiInfo {
  Api api;
  std::string_view path, summary;
};
std::span<const ApiInfo> api_list();
const ApiInfo& api_info(Api api);

enum class Endpoint : uint8_t {
  kHome,
  kHealth,
  kReady,
  kVersion,
  kOpenApi,
  kTokenizerInfo,
  kMetrics,
  kModels,
  kModel,
  kOllamaTags,
  kOllamaPs,
  kOllamaVersion,
  kLlamaProps,
  kLlamaSlots,
  kApi
};

struct Route {
  Endpoint endpoint = Endpoint::kHealth;
  Api api = Api::kChat;   // of kApi
  std::string_view name;  // the path in metrics: "/v1/models/{id}"
  std::string argument;   // of kModel: the id; of kHome: the server's URL
  bool plain = false;     // of kHome: a line of text instead of a page
};

// Clients differ in how they build paths, so "/v1" at the beginning and slashes at the end are optional everywhere:
// "/chat/completions" and "/v1/models/" are routes. Throws ApiError: 404, or 405 with the allowed methods in `allow`.
Route find_route(std::string_view method, std::string_view path, std::string& allow);

// The decoded path of a request's target: of "/v1/models?x", and of "http://host/v1/models", which proxies send.
std::string path_of_target(std::string_view target);

// True for probes, Prometheus and the page at "/". Every other path, known or not, needs a key if the server has any.
bool needs_no_key(std::string_view path);

// The shape of the errors of a path.
ErrorShape error_shape_of(std::string_view path);

}  // namespace quire
