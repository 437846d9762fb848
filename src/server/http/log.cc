#include "server/http/log.h"

#include <fmt/chrono.h>
#include <poll.h>
#include <spdlog/formatter.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "base/signals.h"
#include "json/parse.h"
#include "json/quote.h"

namespace quire {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPollInterval{100}, kLastWords{1000};
// A pipe that is ready for writing takes this much without blocking (PIPE_BUF).
constexpr size_t kWriteBytes = 4096;

// A queue of lines and the thread that writes them.
class LineWriter {
 public:
  LineWriter(int fd, size_t max_bytes) : fd_(fd), max_bytes_(max_bytes) {
    const BlockSignals leave_signals_to_the_caller;
    thread_ = std::thread([this] { run(); });
  }
  ~LineWriter() {
    {
      const std::lock_guard lock(mutex_);
      deadline_ = Clock::now() + kLastWords;
      stopping_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }
  LineWriter(const LineWriter&) = delete;
  LineWriter& operator=(const LineWriter&) = delete;

  void add(std::string line) {
    {
      const std::lock_guard lock(mutex_);
      if (bytes_ + line.size() > max_bytes_) {
        ++lost_;
        return;
      }
      bytes_ += line.size();
      lines_.push_back(std::move(line));
    }
    changed_.notify_one();
  }

  // Waits until all lines are written, but not for ever.
  void drain() {
    std::unique_lock lock(mutex_);
    written_.wait_for(lock, kLastWords, [&] { return bytes_ == 0; });
  }

  // The number of lines lost since the last call; 0 as long as there is no room for a warning.
  size_t take_lost() {
    const std::lock_guard lock(mutex_);
    return bytes_ > max_bytes_ / 2 ? 0 : std::exchange(lost_, 0);
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return stopping_ || !lines_.empty(); });
      if (lines_.empty()) return;
      std::string line = std::move(lines_.front());
      lines_.pop_front();
      lock.unlock();
      const bool written = write_line(line);
      lock.lock();
      bytes_ -= line.size();
      if (bytes_ == 0) written_.notify_all();
      if (!written) return;
    }
  }

  // false: the time at the end is up.
  bool write_line(std::string_view line) {
    while (!line.empty()) {
      pollfd ready{fd_, POLLOUT, 0};
      if (::poll(&ready, 1, static_cast<int>(kPollInterval.count())) == 1) {
        const ssize_t written = ::write(fd_, line.data(), std::min(line.size(), kWriteBytes));
        if (written > 0) {
          line.remove_prefix(static_cast<size_t>(written));
        } else if (errno != EAGAIN && errno != EINTR) {
          return true;  // the reader has gone, and the line is lost
        }
        continue;
      }
      const std::lock_guard lock(mutex_);
      if (stopping_ && Clock::now() >= deadline_) return false;
    }
    return true;
  }

  const int fd_;
  const size_t max_bytes_;
  std::mutex mutex_;
  std::condition_variable changed_, written_;
  std::deque<std::string> lines_;
  size_t bytes_ = 0, lost_ = 0;
  bool stopping_ = false;
  Clock::time_point deadline_;
  std::thread thread_;
};

class LineSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  LineSink(int fd, size_t max_bytes) : writer_(fd, max_bytes) {}

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    if (const size_t lost = writer_.take_lost()) {
      const std::string text = fmt::format("{} lines of the log were lost: they were not read in time", lost);
      add({message.time, {}, "quire", spdlog::level::warn, text});
    }
    add(message);
  }
  void add(const spdlog::details::log_msg& message) {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    writer_.add(fmt::to_string(line));
  }
  void flush_() override { writer_.drain(); }

  LineWriter writer_;
};

// "2026-01-31T12:00:00.123Z"
std::string utc(spdlog::log_clock::time_point time) {
  const auto since = std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch()).count();
  return fmt::format("{:%FT%T}.{:03}Z", fmt::gmtime(static_cast<std::time_t>(since / 1000)), since % 1000);
}

// One object per line: time, level, and either a message or the fields of a request.
class JsonFormatter final : public spdlog::formatter {
 public:
  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& out) override {
    const auto level = spdlog::level::to_string_view(message.level);
    const std::string_view payload(message.payload.data(), message.payload.size());
    std::string line =
        fmt::format(R"({{"time":"{}","level":"{}",)", utc(message.time), std::string_view(level.data(), level.size()));
    if (std::string_view(message.logger_name.data(), message.logger_name.size()) == kRequestLogger) {
      line += payload.substr(1);
    } else {
      line += R"("message":)" + Json(payload).dump(-1, ' ', false, Json::error_handler_t::replace) + '}';
    }
    line += '\n';
    out.append(line.data(), line.data() + line.size());
  }
  std::unique_ptr<spdlog::formatter> clone() const override { return std::make_unique<JsonFormatter>(); }
};

double in_milliseconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

}  // namespace

Log::Log(int fd, LogFormat format, spdlog::level::level_enum level, size_t max_bytes)
    : before_(spdlog::default_logger()) {
  auto logger = std::make_shared<spdlog::logger>("quire", std::make_shared<LineSink>(fd, max_bytes));
  logger->set_level(level);
  if (format == LogFormat::kJson) {
    logger->set_formatter(std::make_unique<JsonFormatter>());
  } else {
    logger->set_pattern("%Y-%m-%d %H:%M:%S.%e %l: %v");
  }
  spdlog::set_default_logger(std::move(logger));
}

Log::~Log() {
  spdlog::default_logger()->flush();  // others may still hold the logger
  spdlog::set_default_logger(before_);
}

std::string loggable(std::string_view text, size_t max_bytes) {
  std::string out(text.substr(0, max_bytes));
  for (char& c : out) c = c >= 0x20 && c < 0x7f ? c : '?';
  if (text.size() > max_bytes) out += "...";
  return out;
}

std::string request_line(const LoggedRequest& record, LogFormat format) {
  const bool generation = !record.finish.empty();
  std::string line;
  if (format == LogFormat::kText) {
    line = fmt::format("{} {} {} {} {:.1f} ms", record.id, record.status, record.method, record.path,
                       in_milliseconds(record.duration));
    if (!record.tenant.empty()) line += fmt::format(", {}", record.tenant);
    if (!generation) return line;
    line += fmt::format(", {} tokens in ({} cached), {} out, {}", record.prompt_tokens, record.cached_tokens,
                        record.completion_tokens, record.finish);
    if (record.ttft.count() >= 0) line += fmt::format(", first after {:.1f} ms", in_milliseconds(record.ttft));
    return line;
  }
  const auto field = [&](std::string_view name, std::string_view value) {
    line += fmt::format(R"({}"{}":)", line.empty() ? '{' : ',', name);
    append_json_string(value, line);
  };
  field("id", record.id);
  if (!record.tenant.empty()) field("tenant", record.tenant);
  field("method", record.method);
  field("path", record.path);
  line += fmt::format(R"(,"status":{},"duration_ms":{:.3f})", record.status, in_milliseconds(record.duration));
  if (generation) {
    line += fmt::format(R"(,"prompt_tokens":{},"cached_tokens":{},"completion_tokens":{})", record.prompt_tokens,
                        record.cached_tokens, record.completion_tokens);
    if (record.ttft.count() >= 0) line += fmt::format(R"(,"ttft_ms":{:.3f})", in_milliseconds(record.ttft));
    field("finish", record.finish);
  }
  return line + '}';
}

}  // namespace quire
