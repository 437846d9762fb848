// What the server says of itself: lines of text or of JSON, by a thread that alone waits for whoever reads them.
#pragma once

#include <spdlog/common.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace spdlog {
class logger;
}

namespace quire {

enum class LogFormat : uint8_t { kText, kJson };

// While it lives, spdlog's default logger writes to `fd`. Lines that the reader does not take in time wait in at most
// max_bytes; more are lost, and how many is said once there is room again. Nobody who logs ever waits.
class Log {
 public:
  Log(int fd, LogFormat format, spdlog::level::level_enum level, size_t max_bytes = 1 << 20);
  ~Log();  // gives a reader that has stopped one second for what is left
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

 private:
  std::shared_ptr<spdlog::logger> before_;
};

// One request, when it has ended. No text of requests and answers.
struct LoggedRequest {
  std::string_view id, tenant, method, path;
  int status = 0;  // 499: the client left before it had an answer
  int prompt_tokens = 0, cached_tokens = 0, completion_tokens = 0;
  std::string_view finish = {};       // empty: it was no generation
  std::chrono::nanoseconds ttft{-1};  // from the request's header to the first token; negative: there was none
  std::chrono::nanoseconds duration{};
};

// The name of loggers whose lines are request_lines: in JSON these are objects already.
inline constexpr const char* kRequestLogger = "request";

std::string request_line(const LoggedRequest& record, LogFormat format);

// What a client sent, fit for a log: printable ASCII, at most so many bytes.
std::string loggable(std::string_view text, size_t max_bytes);

}  // namespace quire
