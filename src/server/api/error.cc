#include "server/api/error.h"

#include <spdlog/spdlog.h>

#include <new>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "server/api/answer/reply.h"

namespace quire {
namespace {

int status_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kInvalid:
    case ErrorKind::kUnsupported:
      return 400;
    case ErrorKind::kNotFound:
      return 404;
    case ErrorKind::kResource:
      return 503;
  }
  return 500;
}

std::string_view anthropic_type(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    default:
      return status < 500 ? "invalid_request_error" : "api_error";
  }
}

}  // namespace

ApiError current_api_error() {
  try {
    throw;
  } catch (const ApiError& e) {
    return e;
  } catch (const Error& e) {
    const int status = status_of(e.kind());
    return {status, e.what(), status == 503 ? "server_error" : "invalid_request_error"};
  } catch (const std::bad_alloc&) {
    return {503, "the server does not have enough memory for this request", "server_error"};
  } catch (const std::exception& e) {
    spdlog::error("a request failed: {}", e.what());
  } catch (...) {
    spdlog::error("a request failed: unknown exception");
  }
  return {500, "the server failed to answer this request", "server_error"};
}

std::string error_body(const ApiError& error, ErrorShape shape) {
  using Json = nlohmann::ordered_json;
  const auto or_null = [](const std::string& text) { return text.empty() ? Json() : Json(text); };
  Json body;
  if (shape == ErrorShape::kAnthropic) {
    body = {{"type", "error"}, {"error", {{"type", anthropic_type(error.status)}, {"message", error.what()}}}};
  } else if (shape == ErrorShape::kOllama) {
    body = {{"error", error.what()}};
  } else {
    body = {{"error",
             {{"message", error.what()},
              {"type", error.type},
              {"param", or_null(error.param)},
              {"code", or_null(error.code)}}}};
  }
  return body.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Reply error_reply(const ApiError& error, ErrorShape shape) {
  Reply reply{.status = error.status, .body = error_body(error, shape)};
  if (error.retry_after > 0) reply.headers.emplace_back("Retry-After", std::to_string(error.retry_after));
  return reply;
}

}  // namespace quire
