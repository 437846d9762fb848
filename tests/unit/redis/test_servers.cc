#include "unit/redis/test_servers.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>

namespace quire {
namespace {

sockaddr_in loopback(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

// A listening socket on a free port.
int listen_somewhere(uint16_t& port) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address = loopback(0);
  socklen_t size = sizeof address;
  EXPECT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(listen(listener, 8), 0);
  EXPECT_EQ(getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size), 0);
  port = ntohs(address.sin_port);
  return listener;
}

bool accepts_connections(uint16_t port) {
  const int probe = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in address = loopback(port);
  const bool accepted = connect(probe, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  close(probe);
  return accepted;
}

std::string program() {
  for (const char* const path : {"/usr/bin/redis-server", "/usr/bin/valkey-server", "/usr/local/bin/redis-server"})
    if (access(path, X_OK) == 0) return path;
  return "";
}

RedisUrl url_of(uint16_t port) {
  RedisUrl url;
  url.host = "127.0.0.1";
  url.port = std::to_string(port);
  return url;
}

}  // namespace

bool RedisServer::is_installed() { return !program().empty(); }

RedisServer::RedisServer(std::vector<std::string> arguments, bool tls) : arguments_(std::move(arguments)), tls_(tls) {
  close(listen_somewhere(port_));
  start();
}

RedisServer::~RedisServer() { kill(); }

void RedisServer::start() {
  const std::string port = std::to_string(port_);
  std::vector<std::string> words{program(), "--bind", "127.0.0.1", "--save", "", "--dir", folder_.path().string()};
  const std::vector<std::string> ports =
      tls_ ? std::vector<std::string>{"--port", "0", "--tls-port", port} : std::vector<std::string>{"--port", port};
  words.insert(words.end(), ports.begin(), ports.end());
  words.insert(words.end(), arguments_.begin(), arguments_.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  process_ = fork();
  if (process_ == 0) {
    dup2(open("/dev/null", O_WRONLY), STDOUT_FILENO);
    execv(argv[0], argv.data());
    _exit(127);
  }
  for (int i = 0; i < 1000 && !accepts_connections(port_); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_TRUE(accepts_connections(port_)) << "redis-server does not start";
}

void RedisServer::kill() {
  if (process_ < 0) return;
  ::kill(process_, SIGKILL);
  waitpid(process_, nullptr, 0);
  process_ = -1;
}

void RedisServer::pause() { ::kill(process_, SIGSTOP); }
void RedisServer::resume() { ::kill(process_, SIGCONT); }

RedisUrl RedisServer::url() const {
  RedisUrl url = url_of(port_);
  url.tls = tls_;
  return url;
}

ScriptedServer::ScriptedServer(Answer answer) : answer_(std::move(answer)), listener_(listen_somewhere(port_)) {
  thread_ = std::thread([this] { serve(); });
}

ScriptedServer::~ScriptedServer() {
  ends_ = true;
  shutdown(listener_, SHUT_RDWR);
  if (const int connection = connection_; connection >= 0) shutdown(connection, SHUT_RDWR);
  thread_.join();
  close(listener_);
}

RedisUrl ScriptedServer::url() const { return url_of(port_); }

void ScriptedServer::serve() {
  while (!ends_) {
    const int connection = accept(listener_, nullptr, nullptr);
    if (connection < 0) return;
    connection_ = connection;
    std::string buffer(1 << 16, 0);
    for (ssize_t bytes; !ends_ && (bytes = recv(connection, buffer.data(), buffer.size(), 0)) > 0;) {
      const std::string answer = answer_({buffer.data(), static_cast<size_t>(bytes)});
      if (answer.empty()) break;
      if (send(connection, answer.data(), answer.size(), MSG_NOSIGNAL) < 0) break;
    }
    connection_ = -1;
    close(connection);
  }
}

}  // namespace quire
