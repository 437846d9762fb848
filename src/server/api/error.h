// Errors that clients see: an HTTP status and a body.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace quire {

struct ApiError : std::runtime_error {
  ApiError(int http_status, const std::string& message, std::string error_type = "invalid_request_error",
           std::string error_param = {}, std::string error_code = {})
      : std::runtime_error(message),
        status(http_status),
        type(std::move(error_type)),
        param(std::move(error_param)),
        code(std::move(error_code)) {}

  int status;
  std::string type;
  std::string param;    // the invalid field: "temperature", "messages[2].content"; empty: none
  std::string code;     // for programs: "model_not_found"; empty: none
  int retry_after = 0;  // seconds, with 429 and 503
};

// A 400 whose message begins with the field: throw bad_request("top_p", "{} is outside [0, 1]", value).
template <class... A>
ApiError bad_request(std::string_view param, fmt::format_string<A...> f, A&&... a) {
  std::string what = fmt::format(f, std::forward<A>(a)...);
  return {400, param.empty() ? what : fmt::format("{}: {}", param, what), "invalid_request_error", std::string(param)};
}

// Call inside a catch block. Converts the exception being handled: ApiError stays, Error becomes the status of its
// kind, std::bad_alloc a 503; anything else becomes a 500 without its message, which may not be meant for the client.
ApiError current_api_error();

enum class ErrorShape : uint8_t {
  kOpenAi,     // {"error": {"message": …, "type": …, "param": … or null, "code": … or null}}
  kAnthropic,  // {"type": "error", "error": {"type": …, "message": …}}
  kOllama,     // {"error": message}
};
std::string error_body(const ApiError& error, ErrorShape shape = ErrorShape::kOpenAi);

}  // namespace quire
