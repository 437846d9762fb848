#include "server/api/failure.h"

#include <fmt/format.h>

#include "json/parse.h"

namespace quire {

ApiError timeout_error() {
  return {504, "the answer was not complete within the request's time", "server_error", {}, "timeout"};
}

ApiError stopping_error() { return {503, "the server is stopping", "server_error", {}, "stopping"}; }

ApiError overloaded_error() {
  ApiError error(503, "the server holds as many bytes of answers as it may; try again later", "server_error", {},
                 "overloaded");
  error.retry_after = 1;
  return error;
}

ApiError load_error(const std::string& model, const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (...) {
    ApiError error(503,
                   fmt::format("the model {} cannot be loaded: {}", describe(Json(model)), current_api_error().what()),
                   "server_error", {}, "model_not_loaded");
    error.retry_after = 30;
    return error;
  }
}

ApiError large_answer_error(size_t limit) {
  return {413,
          fmt::format("writing the answer takes more than {} KiB of memory; ask for less in one request, or raise "
                      "--request-memory",
                      limit >> 10),
          "invalid_request_error",
          {},
          "request_too_large"};
}

// A supervisor starts the server again (docs/scale.md); loading the model takes at least this long.
ApiError lost_error(const std::string& why) {
  ApiError error(503, "what computes is gone, and the server stops: " + why, "server_error", {}, "engine_lost");
  error.retry_after = 5;
  return error;
}

std::optional<ApiError> failure_of(const Output& output) {
  switch (output.finish) {
    case FinishReason::kError:
      return ApiError(500, output.error.empty() ? "the engine failed" : output.error, "server_error");
    case FinishReason::kLost:
      return lost_error(output.error);
    case FinishReason::kRefused:
      return ApiError(400, output.error, "invalid_request_error", {}, "structured_output_refused");
    case FinishReason::kDeadEnd:
      return ApiError(422, output.error, "invalid_request_error", {}, "dead_end");
    case FinishReason::kTimeout:
      return timeout_error();
    case FinishReason::kCancelled:
      return stopping_error();
    default:
      return std::nullopt;
  }
}

}  // namespace quire
