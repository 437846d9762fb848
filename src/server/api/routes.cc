#include "server/api/routes.h"

#include <algorithm>
#include <utility>

#include "base/text/percent.h"
#include "json/parse.h"

namespace quire {
namespace {

constexpr std::string_view kArgument = "{id}";

// Without "/v1" at the beginning and slashes at the end.
std::string_view without_version(std::string_view path) {
  if (path.starts_with("/v1/")) path.remove_prefix(3);
  return path;
}
std::string_view bare(std::string_view path) {
  path = without_version(path);
  while (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  return path;
}

// nullptr: there is none. Sets `argument` to what stands in the place of {id}. Whole paths win over those with {id}.
const GetDefinition* find_get(std::string_view path, std::string& argument) {
  for (const GetDefinition* get : all_gets()) {
    if (!get->path.ends_with(kArgument) && bare(get->path) == bare(path)) return get;
  }
  const std::string_view whole = without_version(path);
  for (const GetDefinition* get : all_gets()) {
    if (!get->path.ends_with(kArgument)) continue;
    const std::string_view prefix = without_version(get->path.substr(0, get->path.size() - kArgument.size()));
    if (!whole.starts_with(prefix) || whole.size() == prefix.size()) continue;
    argument = whole.substr(prefix.size());
    return get;
  }
  return nullptr;
}

// Whether the path is that of the row. Sets `argument` then, if the row's path has one.
bool is_path_of(const StoreDefinition& store, std::string_view path, std::string& argument) {
  std::string_view pattern = bare(store.path), asked = bare(path);
  const size_t at = pattern.find(kArgument);
  if (at == pattern.npos) return pattern == asked;
  const std::string_view before = pattern.substr(0, at), after = pattern.substr(at + kArgument.size());
  if (asked.size() <= before.size() + after.size() || !asked.starts_with(before) || !asked.ends_with(after))
    return false;
  const std::string_view middle = asked.substr(before.size(), asked.size() - before.size() - after.size());
  if (middle.find('/') != middle.npos) return false;
  argument = middle;
  return true;
}

// A row of the path with this method. Otherwise `allowed` has the path's methods, if it has any.
const StoreDefinition* find_store(std::string_view method, std::string_view path, std::string& argument,
                                  std::string& allowed) {
  for (const StoreDefinition* store : all_stores()) {
    if (!is_path_of(*store, path, argument)) continue;
    if (store->method == method || (store->method == "GET" && method == "HEAD")) return store;
    allowed += fmt::format("{}{}", allowed.empty() ? "" : ", ", store->method == "GET" ? "GET, HEAD" : store->method);
  }
  return nullptr;
}

}  // namespace

const StoreDefinition* find_upload(std::string_view method, std::string_view path) {
  std::string argument, allowed;
  const StoreDefinition* const store = find_store(method, path, argument, allowed);
  return store && store->receive ? store : nullptr;
}

std::string query_of_target(std::string_view target) {
  const size_t begin = target.find('?');
  if (begin == target.npos) return {};
  return std::string(target.substr(begin + 1, target.find('#', begin) - begin - 1));
}

std::optional<std::string> query_parameter(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    const std::string_view pair = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), pair.size() + 1));
    const size_t equals = std::min(pair.find('='), pair.size());
    if (percent_decoded(pair.substr(0, equals)) != name) continue;
    std::string value(pair.substr(std::min(pair.size(), equals + 1)));
    std::ranges::replace(value, '+', ' ');
    return percent_decoded(value);
  }
  return std::nullopt;
}

const ApiDefinition* find_api(std::string_view path) {
  const std::string_view asked = bare(path);
  for (const ApiDefinition* api : all_apis()) {
    if (bare(api->path) == asked || std::ranges::find(api->other_paths, asked) != api->other_paths.end()) return api;
  }
  return nullptr;
}

Route find_route(std::string_view method, std::string_view path, std::string& allow) {
  const auto refuse = [&](std::string_view allowed) {
    allow = allowed;
    throw ApiError(405, fmt::format("{} is not allowed here; allowed: {}", describe(Json(method)), allow),
                   "invalid_request_error", {}, "method_not_allowed");
  };
  const auto require = [&](std::string_view allowed) {
    if (allowed != method && !(allowed == "GET" && method == "HEAD")) refuse(allowed == "GET" ? "GET, HEAD" : allowed);
  };
  if (const ApiDefinition* api = find_api(path)) {
    require(api->method);
    return {.api = api, .name = api->path};
  }
  std::string argument;
  if (const GetDefinition* get = find_get(path, argument)) {
    require("GET");
    return {.get = get, .name = get->path, .argument = std::move(argument)};
  }
  std::string methods;
  if (const StoreDefinition* store = find_store(method, path, argument, methods))
    return {.store = store, .name = store->path, .argument = std::move(argument)};
  if (!methods.empty()) refuse(methods);
  throw ApiError(404, fmt::format("nothing found at {}; GET /openapi.json lists the paths", describe(Json(path))),
                 "invalid_request_error", {}, "unknown_url");
}

std::string path_of_target(std::string_view target) {
  const size_t scheme = target.starts_with('/') ? target.npos : target.find("://");
  if (scheme != target.npos) target.remove_prefix(std::min(target.find('/', scheme + 3), target.size()));
  return percent_decoded(target.substr(0, target.find_first_of("?#")));
}

bool needs_no_key(std::string_view path) {
  if (find_api(path)) return false;
  std::string argument;
  const GetDefinition* const get = find_get(path, argument);
  return get && !get->needs_key;
}

ErrorShape error_shape_of(std::string_view path) {
  if (bare(path).starts_with("/api/")) return ErrorShape::kOllama;
  const ApiDefinition* api = find_api(path);
  return api ? api->errors : ErrorShape::kOpenAi;
}

}  // namespace quire
