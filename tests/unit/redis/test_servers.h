// Servers on loopback for the tests of redis/: a real one, and one that sends whatever a test wants.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "redis/redis_url.h"
#include "unit/kv/page_samples.h"

namespace quire {

// A Redis or Valkey server without persistence, with its port for as long as it lives, also over restarts.
class RedisServer {
 public:
  static bool is_installed();
  // Starts it. arguments: of its command line.
  explicit RedisServer(std::vector<std::string> arguments = {}, bool tls = false);
  ~RedisServer();
  RedisServer(const RedisServer&) = delete;
  RedisServer& operator=(const RedisServer&) = delete;

  void start();  // returns when it accepts connections
  void kill();
  void pause();  // until resume(): it accepts connections, and never answers
  void resume();
  RedisUrl url() const;

 private:
  std::vector<std::string> arguments_;
  bool tls_;
  uint16_t port_;
  TemporaryFolder folder_;  // where it works
  pid_t process_ = -1;
};

// Answers each piece of bytes that it receives with what `answer` returns, until that is empty: then it closes the connection.
class ScriptedServer {
 public:
  using Answer = std::function<std::string(std::string_view received)>;
  explicit ScriptedServer(Answer answer);
  ~ScriptedServer();
  RedisUrl url() const;

 private:
  void serve();

  Answer answer_;
  uint16_t port_ = 0;
  int listener_;
  std::atomic<int> connection_{-1};
  std::atomic<bool> ends_{false};
  std::thread thread_;
};

}  // namespace quire
