// TLS for the server: a certificate with its key, and a session for each connection.
#pragma once

#include <memory>
#include <mutex>
#include <string>

// OpenSSL's types, declared here so that only the files that need its headers include them.
struct ssl_st;
struct ssl_ctx_st;

namespace quire {

struct SslDeleter {
  void operator()(ssl_st* session) const;
};
using SslSession = std::unique_ptr<ssl_st, SslDeleter>;

// TLS 1.2 and newer. Thread-safe.
class Tls {
 public:
  // PEM files; the first holds the certificate and its chain. Throws Error that names the file and the problem.
  Tls(std::string certificate_file, std::string key_file);
  ~Tls();
  Tls(const Tls&) = delete;
  Tls& operator=(const Tls&) = delete;

  // Reads the files again, for new sessions. Throws like the constructor, and then nothing has changed.
  void reload();

  // A server's session over a non-blocking socket, which the caller still owns.
  SslSession session(int socket) const;

 private:
  const std::string certificate_file_, key_file_;
  mutable std::mutex mutex_;
  ssl_ctx_st* context_ = nullptr;  // reference-counted: sessions keep the one they began with
};

}  // namespace quire
