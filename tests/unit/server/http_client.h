// A simple blocking HTTP client for tests. It can send any bytes.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "json/parse.h"

namespace quire {

struct HttpAnswer {
  int status = 0;  // 0: the connection ended before an answer
  std::map<std::string, std::string> headers;
  std::string body;
  bool whole = false;

  Json json() const { return Json::parse(body); }
  // The data of a stream's events, or its lines of JSON.
  std::vector<Json> events() const {
    std::vector<Json> events;
    std::istringstream lines(body);
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("data: {")) events.push_back(Json::parse(line.substr(6)));
      if (line.starts_with('{')) events.push_back(Json::parse(line));
    }
    return events;
  }
  std::string error_param() const { return json()["error"]["param"].is_null() ? "" : json()["error"]["param"]; }
};

class HttpClient {
 public:
  explicit HttpClient(uint16_t port, int receive_buffer = 0, const char* host = "127.0.0.1") {
    fd_ = ::socket(AF_INET, SOCK_STREAM, 0);
    if (receive_buffer > 0) ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    ::inet_pton(AF_INET, host, &address.sin_addr);
    connected = ::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  explicit HttpClient(const std::string& socket_path) {
    fd_ = ::socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, socket_path.c_str(), sizeof address.sun_path - 1);
    connected = ::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  ~HttpClient() { close(); }

  // Uses TLS from now on and accepts any certificate. false: the handshake failed.
  bool start_tls() {
    tls_context_.reset(SSL_CTX_new(TLS_client_method()));
    tls_.reset(SSL_new(tls_context_.get()));
    SSL_set_fd(tls_.get(), fd_);
    return SSL_connect(tls_.get()) == 1;
  }
  SSL* tls() { return tls_.get(); }
  void forget_tls() {  // keeps the connection
    tls_.reset();
    tls_context_.reset();
  }
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  bool connected = false;
  int fd() const { return fd_; }

  // Closes the sending side only.
  void end_writing() { ::shutdown(fd_, SHUT_WR); }
  void close() {
    tls_.reset();
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = tls_ ? SSL_write(tls_.get(), bytes.data(), static_cast<int>(bytes.size()))
                             : ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }

  static std::string request(std::string_view method, std::string_view path, std::string_view body = {},
                             std::string_view headers = {}) {
    std::string text =
        std::string(method) + " " + std::string(path) + " HTTP/1.1\r\nHost: 127.0.0.1\r\n" + std::string(headers);
    if (!body.empty())
      text += "Content-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) + "\r\n";
    return text + "\r\n" + std::string(body);
  }

  HttpAnswer get(std::string_view path) { return call("GET", path); }
  HttpAnswer post(std::string_view path, std::string_view body) { return call("POST", path, body); }
  HttpAnswer call(std::string_view method, std::string_view path, std::string_view body = {},
                  std::string_view headers = {}) {
    send(request(method, path, body, headers));
    return read_answer(method == "HEAD");
  }

  // Reads one answer; later bytes stay for the next call. Gives up after 20 seconds.
  HttpAnswer read_answer(bool head_only = false) {
    HttpAnswer answer;
    size_t end = 0;
    while ((end = buffer_.find("\r\n\r\n")) == buffer_.npos) {
      if (!more()) return answer;
    }
    const std::string head = take(end + 4);
    answer.status = std::stoi(head.substr(9, 3));
    for (size_t at = head.find("\r\n") + 2; at + 2 < head.size();) {
      const size_t line_end = head.find("\r\n", at), colon = head.find(':', at);
      std::string name = head.substr(at, colon - at);
      for (char& c : name) c = static_cast<char>(std::tolower(c));
      answer.headers[name] = head.substr(colon + 2, line_end - colon - 2);
      at = line_end + 2;
    }
    if (head_only || answer.status == 100) {
      answer.whole = true;
    } else if (answer.headers.contains("content-length")) {
      const size_t length = std::stoul(answer.headers["content-length"]);
      while (buffer_.size() < length) {
        if (!more()) return answer;
      }
      answer.body = take(length);
      answer.whole = true;
    } else if (answer.headers.contains("transfer-encoding")) {
      read_chunks(answer);
    } else {
      while (more()) {
      }
      answer.body = take(buffer_.size());
    }
    return answer;
  }

  // All bytes until the server closes; nothing if it does not close within the time.
  std::optional<std::string> read_to_end(std::chrono::milliseconds time = std::chrono::seconds(20)) {
    const auto deadline = std::chrono::steady_clock::now() + time;
    for (;;) {
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
      if (left.count() <= 0 || !readable(static_cast<int>(left.count()))) return std::nullopt;
      if (!receive()) return take(buffer_.size());
    }
  }

  // Waits for at least so many bytes and leaves them in the buffer.
  bool wait_for_bytes(size_t bytes) {
    while (buffer_.size() < bytes) {
      if (!more()) return false;
    }
    return true;
  }

 private:
  void read_chunks(HttpAnswer& answer) {
    for (;;) {
      size_t end = 0;
      while ((end = buffer_.find("\r\n")) == buffer_.npos) {
        if (!more()) return;
      }
      const size_t size = std::stoul(take(end + 2), nullptr, 16);
      while (buffer_.size() < size + 2) {
        if (!more()) return;
      }
      answer.body += take(size);
      take(2);
      if (size == 0) {
        answer.whole = true;
        return;
      }
    }
  }

  bool readable(int milliseconds) {
    if (tls_ && SSL_pending(tls_.get()) > 0) return true;
    pollfd poll{fd_, POLLIN, 0};
    return ::poll(&poll, 1, milliseconds) == 1;
  }
  bool receive() {
    char bytes[65536];
    const ssize_t n =
        tls_ ? SSL_read(tls_.get(), bytes, static_cast<int>(sizeof bytes)) : ::recv(fd_, bytes, sizeof bytes, 0);
    if (n <= 0) return false;
    buffer_.append(bytes, static_cast<size_t>(n));
    return true;
  }
  bool more() { return readable(20'000) && receive(); }
  std::string take(size_t bytes) {
    std::string taken = buffer_.substr(0, bytes);
    buffer_.erase(0, bytes);
    return taken;
  }

  struct Free {
    void operator()(SSL* tls) const { SSL_free(tls); }
    void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
  };
  int fd_ = -1;
  std::unique_ptr<SSL_CTX, Free> tls_context_;
  std::unique_ptr<SSL, Free> tls_;
  std::string buffer_;
};

// The data of a stream's events, including [DONE].
inline std::vector<std::string> events(const std::string& body) {
  std::vector<std::string> found;
  for (size_t at = 0; at < body.size();) {
    const size_t end = body.find("\n\n", at);
    if (end == body.npos || body.compare(at, 6, "data: ") != 0) return {"broken stream"};
    found.push_back(body.substr(at + 6, end - at - 6));
    at = end + 2;
  }
  return found;
}

}  // namespace quire
