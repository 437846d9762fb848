#include "server/http/log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "json/parse.h"
#include "unit/server/running_server.h"

namespace quire {
namespace {

using namespace std::chrono_literals;

// A pipe whose reader reads only on request.
class Pipe {
 public:
  Pipe() { EXPECT_EQ(::pipe2(ends_, O_CLOEXEC), 0); }
  ~Pipe() {
    ::close(ends_[0]);
    close_writer();
  }
  int writer() const { return ends_[1]; }
  void close_writer() {
    if (ends_[1] >= 0) ::close(ends_[1]);
    ends_[1] = -1;
  }
  std::string read_some() {
    std::string text(1 << 16, '\0');
    const ssize_t n = ::read(ends_[0], text.data(), text.size());
    text.resize(n > 0 ? static_cast<size_t>(n) : 0);
    return text;
  }
  std::string read_to_end() {
    close_writer();
    std::string all;
    for (std::string more = read_some(); !more.empty(); more = read_some()) all += more;
    return all;
  }

 private:
  int ends_[2] = {-1, -1};
};

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    lines.push_back(text.substr(at, end - at));
    at = end == text.npos ? end : end + 1;
  }
  return lines;
}

constexpr LoggedRequest kRecord{.id = "abc",
                                .tenant = "team-a",
                                .method = "POST",
                                .path = "/v1/completions",
                                .status = 200,
                                .prompt_tokens = 20,
                                .cached_tokens = 16,
                                .completion_tokens = 7,
                                .finish = "stop",
                                .ttft = 12500us,
                                .duration = 100ms};

TEST(Log, WritesARequestAsTextAndAsJson) {
  EXPECT_EQ(
      request_line(kRecord, LogFormat::kText),
      "abc 200 POST /v1/completions 100.0 ms, team-a, 20 tokens in (16 cached), 7 out, stop, first after 12.5 ms");
  EXPECT_EQ(Json::parse(request_line(kRecord, LogFormat::kJson)),
            Json::parse(R"({"id": "abc", "tenant": "team-a", "method": "POST", "path": "/v1/completions",
                            "status": 200, "duration_ms": 100.0, "prompt_tokens": 20, "cached_tokens": 16,
                            "completion_tokens": 7, "ttft_ms": 12.5, "finish": "stop"})"));
  const LoggedRequest other{.id = "\"", .tenant = {}, .method = "GET", .path = "/\\", .status = 404};
  EXPECT_EQ(request_line(other, LogFormat::kText), "\" 404 GET /\\ 0.0 ms");
  EXPECT_EQ(Json::parse(request_line(other, LogFormat::kJson))["id"], "\"");
}

TEST(Log, WritesValidJsonForAnyMessage) {
  Pipe pipe;
  {
    const Log log(pipe.writer(), LogFormat::kJson, spdlog::level::info);
    spdlog::debug("not this");
    spdlog::warn("a \"quoted\"\nmessage \xff");
    spdlog::default_logger()->clone(kRequestLogger)->info(request_line(kRecord, LogFormat::kJson));
  }
  const auto lines = lines_of(pipe.read_to_end());
  ASSERT_EQ(lines.size(), 2u);
  const Json first = Json::parse(lines[0]), second = Json::parse(lines[1]);
  EXPECT_EQ(first["level"], "warning");
  EXPECT_TRUE(first["message"].get<std::string>().starts_with("a \"quoted\"\nmessage "));
  EXPECT_EQ(first["time"].get<std::string>().size(), 24u);
  EXPECT_EQ(second["level"], "info");
  EXPECT_EQ(second["finish"], "stop");
}

TEST(Log, NeverWaitsForASlowReaderAndReportsLostLines) {
  Pipe pipe;
  const std::string text(1000, 'x');
  const auto begun = std::chrono::steady_clock::now();
  std::string all;
  {
    const Log log(pipe.writer(), LogFormat::kText, spdlog::level::info, 100'000);
    for (int i = 0; i < 1000; ++i) spdlog::info(text);  // 1 MB: past the pipe's 64 KiB and the log's 100 KB
    EXPECT_LT(std::chrono::steady_clock::now() - begun, 5s);
    std::atomic<bool> said{false};
    std::thread reader([&] {
      while (all.find("the last line") == all.npos) {
        all += pipe.read_some();
        said = all.find("lines of the log were lost") != all.npos;
      }
    });
    EXPECT_TRUE(eventually([&] {
      spdlog::info("again");
      return said.load();
    }));
    spdlog::info("the last line");
    reader.join();
  }
  EXPECT_LT(all.size(), 500'000u);
}

TEST(Log, EndsInTimeWithoutAReader) {
  Pipe pipe;
  const auto begun = std::chrono::steady_clock::now();
  {
    const Log log(pipe.writer(), LogFormat::kText, spdlog::level::info);
    for (int i = 0; i < 200; ++i) spdlog::info("{}", std::string(1000, 'x'));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begun, 5s);
}

TEST(Log, HasALineForEachRequest) {
  Pipe pipe;
  {
    const Log log(pipe.writer(), LogFormat::kJson, spdlog::level::info);
    ServerOptions options;
    options.log_format = LogFormat::kJson;
    options.api_keys = {"sk-1"};
    RunningServer running(options, {}, spdlog::level::info);
    const std::string key = "Authorization: Bearer sk-1\r\nX-Request-Id: ";
    HttpClient client(running.port());
    client.call("POST", kChatPath, chat_body(R"("stream": true, "n": 2)"), key + "one\r\n");
    client.call("POST", kChatPath, "{", key + "two\r\n");
    client.call("GET", "/health?secret=1", {}, "X-Request-Id: three\r\n");
    client.call("POST", kChatPath, chat_body(), "X-Request-Id: four\r\n");
    HttpClient(running.port()).send("nonsense\r\n\r\n");
    RunningServer endless(options, {}, spdlog::level::info);
    endless.model.endless = true;
    endless.model.token_time = 1ms;
    HttpClient leaver(endless.port());
    leaver.send(HttpClient::request("POST", kChatPath, chat_body(R"("max_tokens": 100000)"), key + "five\r\n"));
    ASSERT_TRUE(eventually([&] { return endless.model.generated() > 5; }));
    leaver.close();
    ASSERT_TRUE(eventually([&] { return endless.model.running() == 0; }));
  }
  std::map<std::string, Json> records;
  for (const std::string& line : lines_of(pipe.read_to_end())) {
    const Json record = Json::parse(line);
    if (record.contains("id"))
      records[record["status"] == 400 && record["path"] == "-" ? "bad" : record["id"]] = record;
  }
  ASSERT_EQ(records.size(), 6u);
  EXPECT_EQ(records["one"]["status"], 200);
  EXPECT_EQ(records["one"]["tenant"].get<std::string>().substr(0, 4), "key-");
  EXPECT_EQ(records["one"]["prompt_tokens"], 2);
  EXPECT_EQ(records["one"]["completion_tokens"], 10);
  EXPECT_EQ(records["one"]["finish"], "stop");
  EXPECT_GE(records["one"]["ttft_ms"], 0);
  EXPECT_EQ(records["two"]["status"], 400);
  EXPECT_FALSE(records["two"].contains("finish"));
  EXPECT_EQ(records["three"]["path"], "/health");
  EXPECT_EQ(records["four"]["status"], 401);
  EXPECT_EQ(records["five"]["status"], 499);
  EXPECT_EQ(records["five"]["finish"], "abort");
}

}  // namespace
}  // namespace quire
