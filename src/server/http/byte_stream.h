// A client's bytes, in the clear or through TLS. Nothing here waits: what cannot go on says what for.
//
// Waiting for readiness and only then reading keeps an idle connection free of buffers, and makes one code of both
// kinds of connection.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "server/http/tls.h"

namespace quire {

// Not thread-safe.
class Stream {
 public:
  enum class State : uint8_t {
    kDone,
    kWantsRead,   // again when the socket is readable
    kWantsWrite,  // again when it is writable
    kEnd,         // the client has gone, or breaks the protocol
  };
  struct Transfer {
    State state;
    size_t bytes = 0;  // with kDone: moved, at least one
  };

  // tls: nullptr for a connection in the clear.
  Stream(boost::asio::ip::tcp::socket socket, const Tls* tls);

  boost::asio::ip::tcp::socket& socket() { return socket_; }

  bool secure() const { return session_ != nullptr; }
  State handshake();  // of a secure stream, before anything else
  // After a failed handshake: the client spoke HTTP instead. What is written from then on goes out in the clear.
  bool spoke_http() const { return spoke_http_; }

  Transfer read(std::span<char> to);
  Transfer write(std::string_view bytes);

  void end_writing();  // what was written reaches the client before the end does
  Transfer discard();  // raw bytes that still come, after end_writing
  void cancel();       // whoever waits for the socket
  void close();

 private:
  State state_of(int result);

  boost::asio::ip::tcp::socket socket_;
  SslSession session_;
  bool shaken_ = false, spoke_http_ = false;
};

}  // namespace quire
