// The server's log: lines of text or JSON. A thread of its own writes them, so that logging never blocks.
//
// Not spdlog's async logger: that one bounds its queue by messages instead of bytes, and at its end waits for a reader
// that has stopped.
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

// While it lives, spdlog's default logger writes to `fd`. At most max_bytes of lines wait for a slow reader; further
// lines are lost, and a warning says how many once there is room again.
class Log {
 public:
  Log(int fd, LogFormat format, spdlog::level::level_enum level, size_t max_bytes = 1 << 20);
  ~Log();  // waits at most a second for a reader that has stopped
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

 private:
  std::shared_ptr<spdlog::logger> before_;
};

// A request that has ended. Holds no text of requests or answers.
struct LoggedRequest {
  std::string_view id, tenant, method, path;
  int status = 0;  // 499: the client left before its answer
  int prompt_tokens = 0, cached_tokens = 0, completion_tokens = 0;
  std::string_view finish = {};       // empty: not a generation
  std::chrono::nanoseconds ttft{-1};  // from the request's header to the first token; negative: no token
  std::chrono::nanoseconds duration{};
};

// The logger of request_lines, which the JSON format takes as finished objects.
inline constexpr const char* kRequestLogger = "request";

std::string request_line(const LoggedRequest& record, LogFormat format);

// A client's text made safe for a log: printable ASCII, cut after max_bytes.
std::string loggable(std::string_view text, size_t max_bytes);

}  // namespace quire
