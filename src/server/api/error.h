// What a request can end with instead of an answer: an HTTP status and OpenAI's error body.
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
  std::string param;    // the field that is wrong: "temperature", "messages[2].content"; empty: none
  std::string code;     // for programs: "model_not_found"; empty: none
  int retry_after = 0;  // seconds, with 429 and 503
};

// throw bad_request("top_p", "{} is outside [0, 1]", value): a 400 whose message begins with the field.
template <class... A>
ApiError bad_request(std::string_view param, fmt::format_string<A...> f, A&&... a) {
  std::string what = fmt::format(f, std::forward<A>(a)...);
  return {400, param.empty() ? what : fmt::format("{}: {}", param, what), "invalid_request_error", std::string(param)};
}

// The error that is being handled, as the client shall see it. Call inside a catch block: ApiError as it is, Error by
// its kind, TemplateError as a 400; anything else is a 500 without its message, which may hold what is not the
// client's.
ApiError current_api_error();

enum class ErrorShape : uint8_t {
  kOpenAi,     // {"error": {"message": …, "type": …, "param": … or null, "code": … or null}}
  kAnthropic,  // {"type": "error", "error": {"type": …, "message": …}}
};
std::string error_body(const ApiError& error, ErrorShape shape = ErrorShape::kOpenAi);

}  // namespace quire
