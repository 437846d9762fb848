#include "server/http/early_reply.h"

#include <fmt/format.h>

#include "json/parse.h"
#include "server/api/routes.h"

namespace quire {
namespace {

namespace http = boost::beast::http;

std::string quoted(std::string_view header) { return describe(Json(header)); }

std::optional<Reply> preflight_reply(const HttpRequest& request, const CorsOptions& cors, const LocalHosts& local) {
  if (request.method() != http::verb::options) return std::nullopt;
  auto asked = preflight(cors, local, request[http::field::origin], request[http::field::access_control_request_method],
                         request[http::field::access_control_request_headers]);
  if (!asked) return std::nullopt;
  if (!asked->refusal.empty()) return error_reply({403, asked->refusal, "invalid_request_error", {}, "cors"});
  return Reply{.body = "OK", .content_type = "text/plain", .headers = std::move(asked->headers)};
}

std::optional<ApiError> foreign_page(const HttpRequest& request, const LocalHosts& local) {
  const std::string_view host = request[http::field::host], origin = request[http::field::origin];
  if (!local.allows_host(host)) {
    return ApiError(403,
                    fmt::format("requests to the host {} are refused: without API keys, a server on loopback answers "
                                "only to loopback names; allow the host with --allowed-origins, or set keys with "
                                "--api-key",
                                quoted(host)),
                    "invalid_request_error", {}, "foreign_host");
  }
  if (!local.allows_origin(origin)) {
    return ApiError(403,
                    fmt::format("requests from pages of {} are refused; allow them with --allowed-origins, or set keys "
                                "with --api-key",
                                quoted(origin)),
                    "invalid_request_error", {}, "foreign_origin");
  }
  return std::nullopt;
}

// Sets the request's tenant where the key is right.
std::optional<Reply> key_refusal(const HttpRequest& http, const ApiKeys& keys, CurrentRequest& request) {
  if (!keys.required() || needs_no_key(request.path)) return std::nullopt;
  std::string_view key = bearer_key(http[http::field::authorization]);
  if (key.empty()) key = http["x-api-key"];  // Anthropic's clients
  if (auto tenant = keys.tenant_of(key)) {
    request.tenant = std::move(*tenant);
    return std::nullopt;
  }
  const ApiError error(401, key.empty() ? "an API key is needed: Authorization: Bearer KEY" : "wrong API key",
                       "invalid_request_error", {}, "invalid_api_key");
  Reply reply = error_reply(error, request.error_shape);
  reply.headers.emplace_back("WWW-Authenticate", "Bearer");
  return reply;
}

std::optional<Reply> encoding_refusal(const HttpRequest& http, ErrorShape shape) {
  const std::string_view encoding = http[http::field::content_encoding];
  if (encoding.empty() || boost::beast::iequals(encoding, "identity")) return std::nullopt;
  const ApiError error(415,
                       fmt::format("Content-Encoding: {} is not supported; send the body as it is", quoted(encoding)),
                       "invalid_request_error", {}, "unsupported_encoding");
  Reply reply = error_reply(error, shape);
  reply.headers.emplace_back("Accept-Encoding", "identity");
  return reply;
}

}  // namespace

std::optional<Reply> early_reply(const HttpRequest& http, bool guarded, const ConnectionContext& context,
                                 CurrentRequest& request) {
  if (guarded) {
    if (const auto error = foreign_page(http, context.local_hosts)) return error_reply(*error, request.error_shape);
  }
  if (auto reply = preflight_reply(http, context.options.cors, context.local_hosts)) return reply;
  if (auto reply = key_refusal(http, context.keys, request)) return reply;
  return encoding_refusal(http, request.error_shape);
}

}  // namespace quire
