#include "redis/stream.h"

#include <netdb.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <new>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace quire {
namespace {

Error system_error(const char* what, int error) {
  return no_resource("{}: {}", what, std::generic_category().message(error));
}

// The reason that OpenSSL keeps, or that of the system.
Error tls_error(const SSL* tls, int system) {
  if (const long verdict = SSL_get_verify_result(tls); verdict != X509_V_OK)
    return no_resource("the certificate is not accepted: {}", X509_verify_cert_error_string(verdict));
  const unsigned long error = ERR_get_error();
  if (error != 0)
    return no_resource("TLS failed: {}", ERR_reason_error_string(error) ? ERR_reason_error_string(error) : "");
  return system != 0 ? system_error("TLS failed", system) : no_resource("the connection was closed");
}

struct Addresses {
  addrinfo* first = nullptr;
  ~Addresses() {
    if (first) freeaddrinfo(first);
  }
};

bool is_not_yet(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

}  // namespace

Stream::Stream(const RedisUrl& server, Deadline deadline) {
  connect(server, deadline);
  if (!server.tls) return;
  try {
    start_tls(server, deadline);
  } catch (...) {
    close(socket_);
    throw;
  }
}

Stream::~Stream() {
  tls_.reset();
  close(socket_);
}

void Stream::connect(const RedisUrl& server, Deadline deadline) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  Addresses addresses;
  if (const int error = getaddrinfo(server.host.c_str(), server.port.c_str(), &hints, &addresses.first))
    throw no_resource("the host is not known: {}", gai_strerror(error));
  int error = ENOENT;
  for (const addrinfo* at = addresses.first; at; at = at->ai_next) {
    socket_ = socket(at->ai_family, at->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, at->ai_protocol);
    if (socket_ < 0) throw system_error("cannot connect", errno);
    try {
      error = ::connect(socket_, at->ai_addr, at->ai_addrlen) == 0 ? 0 : errno;
      if (error == EINPROGRESS) {
        wait(POLLOUT, deadline);
        socklen_t size = sizeof error;
        if (getsockopt(socket_, SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
      }
    } catch (...) {
      close(socket_);
      throw;
    }
    if (error == 0) {
      const int on = 1;
      setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      return;
    }
    close(socket_);
  }
  throw system_error("cannot connect", error);
}

void Stream::start_tls(const RedisUrl& server, Deadline deadline) {
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(SSL_CTX_new(TLS_client_method()), &SSL_CTX_free);
  if (!context) throw std::bad_alloc();
  SSL_CTX_set_default_verify_paths(context.get());
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  tls_.reset(SSL_new(context.get()));
  if (!tls_ || SSL_set_fd(tls_.get(), socket_) != 1) throw std::bad_alloc();
  const char* const host = server.host.c_str();
  if (X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(tls_.get()), host) != 1) {  // not an address
    SSL_set_tlsext_host_name(tls_.get(), host);
    if (SSL_set1_host(tls_.get(), host) != 1) throw std::bad_alloc();
  }
  tls_call([&] { return SSL_connect(tls_.get()); }, deadline);
}

void Stream::wait(short events, Deadline deadline) const {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
    pollfd one{socket_, events, 0};
    const int ready = left <= 0 ? 0 : poll(&one, 1, static_cast<int>(std::min<int64_t>(left, INT_MAX)));
    if (ready > 0) return;
    if (ready == 0) throw no_resource("timed out");
    if (errno != EINTR) throw system_error("cannot wait", errno);
  }
}

template <class Call>
int Stream::tls_call(Call call, Deadline deadline) {
  for (;;) {
    ERR_clear_error();
    errno = 0;
    const int result = call();
    if (result > 0) return result;
    const int system = errno;
    switch (SSL_get_error(tls_.get(), result)) {
      case SSL_ERROR_WANT_READ:
        wait(POLLIN, deadline);
        break;
      case SSL_ERROR_WANT_WRITE:
        wait(POLLOUT, deadline);
        break;
      default:
        throw tls_error(tls_.get(), system);
    }
  }
}

void Stream::send(std::span<const char> bytes, Deadline deadline) {
  while (!bytes.empty()) {
    ssize_t sent = 0;
    if (tls_) {
      const int part = static_cast<int>(std::min<size_t>(bytes.size(), size_t{1} << 20));
      sent = tls_call([&] { return SSL_write(tls_.get(), bytes.data(), part); }, deadline);
    } else {
      sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    }
    if (sent < 0) {
      if (!is_not_yet(errno)) throw system_error("cannot send", errno);
      wait(POLLOUT, deadline);
      continue;
    }
    bytes = bytes.subspan(static_cast<size_t>(sent));
  }
}

size_t Stream::receive(std::span<char> buffer, Deadline deadline) {
  if (tls_) {
    const int most = static_cast<int>(std::min<size_t>(buffer.size(), INT_MAX));
    return static_cast<size_t>(tls_call([&] { return SSL_read(tls_.get(), buffer.data(), most); }, deadline));
  }
  for (;;) {
    const ssize_t bytes = recv(socket_, buffer.data(), buffer.size(), 0);
    if (bytes > 0) return static_cast<size_t>(bytes);
    if (bytes == 0) throw no_resource("the connection was closed");
    if (!is_not_yet(errno)) throw system_error("cannot receive", errno);
    wait(POLLIN, deadline);
  }
}

}  // namespace quire
