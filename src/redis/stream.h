// Bytes to and from a server, with or without TLS.
#pragma once

#include <openssl/ssl.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "redis/redis_url.h"

namespace quire {

using Deadline = std::chrono::steady_clock::time_point;

// Every operation ends by its deadline, or throws Error: "timed out" and the like, without a name. (Only looking up a host's
// name takes as long as the system's resolver.) For threads that block SIGPIPE (base/signals.h): OpenSSL writes without care
// for it.
class Stream {
 public:
  // Connects and, with TLS, verifies the certificate: its chain by the system's authorities or those of SSL_CERT_FILE, and
  // its name. Throws Error.
  Stream(const RedisUrl& server, Deadline deadline);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  void send(std::span<const char> bytes, Deadline deadline);  // all of them
  size_t receive(std::span<char> buffer, Deadline deadline);  // at least one byte; returns how many

 private:
  struct FreeTls {
    void operator()(SSL* tls) const { SSL_free(tls); }
  };

  void connect(const RedisUrl& server, Deadline deadline);
  void start_tls(const RedisUrl& server, Deadline deadline);
  void wait(short events, Deadline deadline) const;
  template <class Call>
  int tls_call(Call call, Deadline deadline);

  int socket_ = -1;
  std::unique_ptr<SSL, FreeTls> tls_;  // null: plain
};

}  // namespace quire
