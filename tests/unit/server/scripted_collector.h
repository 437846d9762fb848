// A collector of spans that answers as a script says, and keeps what it gets.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "json/parse.h"

namespace quire {

struct CollectorReply {
  int status = 200;
  std::string headers = {};  // lines
  std::string body = "{}";
  std::chrono::milliseconds delay{0};
  bool closes = false;  // without an answer, before the request is read
};

// Serves one connection after another, with a request each.
class ScriptedCollector {
 public:
  // script: called with the number of the request, from 0.
  explicit ScriptedCollector(std::function<CollectorReply(int)> script = [](int) { return CollectorReply{}; })
      : script_(std::move(script)) {
    listener_ = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ::bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address);
    ::listen(listener_, 16);
    socklen_t size = sizeof address;
    ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { run(); });
  }
  ~ScriptedCollector() {
    stopping_ = true;
    thread_.join();
    ::close(listener_);
  }

  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_) + "/v1/traces"; }
  int requests() const { return requests_; }
  std::vector<std::string> texts() const {  // of whole requests, that were answered
    const std::lock_guard lock(mutex_);
    return texts_;
  }
  // All spans of answered requests.
  std::vector<Json> spans() const {
    std::vector<Json> spans;
    for (const std::string& text : texts()) {
      const Json body = Json::parse(text.substr(text.find("\r\n\r\n") + 4));
      for (const Json& span : body["resourceSpans"][0]["scopeSpans"][0]["spans"]) spans.push_back(span);
    }
    return spans;
  }
  // The value of a span's attribute, whatever its type.
  static Json attribute(const Json& span, std::string_view key) {
    for (const Json& attribute : span["attributes"]) {
      if (attribute["key"] == key) return attribute["value"].front();
    }
    return nullptr;
  }

 private:
  void run() {
    while (!stopping_) {
      pollfd ready{listener_, POLLIN, 0};
      if (::poll(&ready, 1, 10) <= 0) continue;
      const int connection = ::accept(listener_, nullptr, nullptr);
      if (connection < 0) continue;
      serve(connection);
      ::close(connection);
    }
  }

  void serve(int connection) {
    const CollectorReply reply = script_(requests_++);
    if (reply.closes) return;
    const std::string text = read_request(connection);
    for (auto left = reply.delay; left.count() > 0 && !stopping_; left -= std::chrono::milliseconds(10))
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    const std::string answer = "HTTP/1.1 " + std::to_string(reply.status) + " Scripted\r\n" + reply.headers +
                               "Content-Length: " + std::to_string(reply.body.size()) + "\r\n\r\n" + reply.body;
    {
      const std::lock_guard lock(mutex_);
      texts_.push_back(text);
    }
    ::send(connection, answer.data(), answer.size(), MSG_NOSIGNAL);
    ::shutdown(connection, SHUT_WR);
  }

  std::string read_request(int connection) const {
    std::string text;
    char bytes[4096];
    const auto whole = [&] {
      const size_t end = text.find("\r\n\r\n"), length = text.find("Content-Length: ");
      return end != text.npos && length != text.npos && text.size() >= end + 4 + std::stoul(text.substr(length + 16));
    };
    while (!whole() && !stopping_) {
      const ssize_t count = ::recv(connection, bytes, sizeof bytes, 0);
      if (count <= 0) break;
      text.append(bytes, static_cast<size_t>(count));
    }
    return text;
  }

  std::function<CollectorReply(int)> script_;
  int listener_ = -1;
  uint16_t port_ = 0;
  std::atomic<bool> stopping_{false};
  std::atomic<int> requests_{0};
  mutable std::mutex mutex_;
  std::vector<std::string> texts_;
  std::thread thread_;
};

}  // namespace quire
