// TLS for the server: a certificate with its key, and a session a connection.
#pragma once

#include <memory>
#include <mutex>
#include <string>

// OpenSSL's own names, so that its headers stay where they are needed.
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
  // PEM files; the certificate's chain stands in its file. Throws Error that names the file and what is wrong with it.
  Tls(std::string certificate_file, std::string key_file);
  ~Tls();
  Tls(const Tls&) = delete;
  Tls& operator=(const Tls&) = delete;

  // Reads the files again, for sessions from now on. Throws as the constructor does, and then nothing has changed.
  void reload();

  // A server's session over a non-blocking socket, which stays the caller's.
  SslSession session(int socket) const;

 private:
  const std::string certificate_file_, key_file_;
  mutable std::mutex mutex_;
  ssl_ctx_st* context_ = nullptr;  // counts its references: sessions keep theirs
};

}  // namespace quire
