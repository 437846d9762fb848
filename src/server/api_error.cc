#include "server/api_error.h"

#include <spdlog/spdlog.h>

#include <new>
#include <nlohmann/json.hpp>

#include "base/error.h"

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
    return {503, "the server has not enough memory for this request", "server_error"};
  } catch (const std::exception& e) {
    spdlog::error("a request failed: {}", e.what());
  } catch (...) {
    spdlog::error("a request failed: unknown exception");
  }
  return {500, "the server failed to answer this request", "server_error"};
}

std::string error_body(const ApiError& error) {
  const auto or_null = [](const std::string& text) {
    return text.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(text);
  };
  const nlohmann::ordered_json body = {{"error",
                                        {{"message", error.what()},
                                         {"type", error.type},
                                         {"param", or_null(error.param)},
                                         {"code", or_null(error.code)}}}};
  return body.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace quire
