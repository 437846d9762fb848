// A client's bytes, plain or through TLS. Non-blocking: a call that cannot proceed returns the readiness to wait for.
//
// Waiting for readiness and only then reading keeps an idle connection free of buffers, and gives plain and TLS
// connections the same code.
#pragma once

#include <boost/asio/generic/stream_protocol.hpp>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "server/http/tls.h"

namespace quire {

using Socket = boost::asio::generic::stream_protocol::socket;  // TCP or Unix

// Not thread-safe.
class ByteStream {
 public:
  enum class State : uint8_t {
    kDone,
    kWantsRead,   // try again when the socket is readable
    kWantsWrite,  // try again when it is writable
    kEnd,         // the client has closed its sending side properly; it may still read
    kBroken,      // the client has gone or violated the protocol
  };
  struct Transfer {
    State state;
    size_t bytes = 0;  // with kDone: bytes moved, at least one
  };

  // tls: nullptr for a plain connection.
  ByteStream(Socket socket, const Tls* tls);

  Socket& socket() { return socket_; }

  bool secure() const { return session_ != nullptr; }
  State handshake();  // on a secure stream, before anything else
  // After a failed handshake: the client spoke HTTP. Everything written from then on goes out in plain.
  bool spoke_http() const { return spoke_http_; }

  Transfer read(std::span<char> to);
  Transfer write(std::string_view bytes);

  void end_writing();  // everything written before still reaches the client
  Transfer discard();  // reads raw bytes and drops them, after end_writing
  void cancel();       // wakes whoever waits for the socket
  void close();

 private:
  State state_of(int result);

  Socket socket_;
  SslSession session_;
  bool shaken_ = false, spoke_http_ = false;
};

}  // namespace quire
