// An address that the server listens on: TCP, or a Unix socket whose file it creates and removes.
#pragma once

#include <sys/types.h>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <cstdint>
#include <string>

namespace quire {

class Listener {
 public:
  using Acceptor = boost::asio::basic_socket_acceptor<boost::asio::generic::stream_protocol>;

  // Each listens from now on; throws Error if the address is wrong or in use.
  // port 0: any free one. dual_stack: an IPv6 wildcard takes IPv4 connections too.
  static Listener on_tcp(const boost::asio::any_io_executor& executor, const std::string& host, uint16_t port,
                         bool dual_stack);
  // Replaces a socket file that nobody listens on. Its owner and group may connect.
  static Listener on_unix_socket(const boost::asio::any_io_executor& executor, const std::string& path);

  Listener(Listener&& other) noexcept;
  Listener& operator=(Listener&&) = delete;
  ~Listener() { close(); }

  Acceptor& acceptor() { return acceptor_; }
  uint16_t port() const { return port_; }          // 0: a Unix socket
  bool loopback() const { return loopback_; }      // a loopback address
  std::string url(std::string_view scheme) const;  // "http://127.0.0.1:8080", "unix:/run/quire.sock"
  void close();                                    // refuses further connections; removes the file

 private:
  explicit Listener(const boost::asio::any_io_executor& executor) : acceptor_(executor) {}

  Acceptor acceptor_;
  std::string address_;  // "127.0.0.1", "[::1]"; of a Unix socket its path
  uint16_t port_ = 0;
  bool loopback_ = false;
  ino_t inode_ = 0;  // the Unix socket's file: never remove another server's file of the same name
};

}  // namespace quire
