#include "server/http/tls.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdint>
#include <new>

#include "base/error.h"

namespace quire {
namespace {

using Context = std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)>;

// The first error in OpenSSL's queue says the most.
std::string openssl_error() {
  const char* reason = ERR_reason_error_string(ERR_get_error());
  ERR_clear_error();
  return reason ? reason : "unknown error";
}

// OpenSSL's own socket BIO writes without MSG_NOSIGNAL, so a client that leaves would end the process.
int socket_of(BIO* bio) { return static_cast<int>(reinterpret_cast<intptr_t>(BIO_get_data(bio))); }

int bio_write(BIO* bio, const char* data, int size) {
  BIO_clear_retry_flags(bio);
  const ssize_t sent = ::send(socket_of(bio), data, static_cast<size_t>(size), MSG_NOSIGNAL);
  if (sent < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_write(bio);
  return static_cast<int>(sent);
}

int bio_read(BIO* bio, char* data, int size) {
  BIO_clear_retry_flags(bio);
  const ssize_t received = ::recv(socket_of(bio), data, static_cast<size_t>(size), 0);
  if (received < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_read(bio);
  return static_cast<int>(received);
}

long bio_ctrl(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

const BIO_METHOD* socket_method() {
  static const BIO_METHOD* const method = [] {
    BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "quire socket");
    BIO_meth_set_write(made, bio_write);
    BIO_meth_set_read(made, bio_read);
    BIO_meth_set_ctrl(made, bio_ctrl);
    return made;
  }();
  return method;
}

// Chooses HTTP/1.1 by ALPN if the client offers it, and nothing otherwise.
int choose_protocol(SSL*, const unsigned char** out, unsigned char* out_size, const unsigned char* offered,
                    unsigned size, void*) {
  static constexpr unsigned char kHttp11[] = "\x08http/1.1";
  unsigned char* chosen = nullptr;
  if (SSL_select_next_proto(&chosen, out_size, kHttp11, sizeof kHttp11 - 1, offered, size) != OPENSSL_NPN_NEGOTIATED) {
    return SSL_TLSEXT_ERR_NOACK;
  }
  *out = chosen;
  return SSL_TLSEXT_ERR_OK;
}

Context make_context(const std::string& certificate_file, const std::string& key_file) {
  ERR_clear_error();
  Context context(SSL_CTX_new(TLS_server_method()), SSL_CTX_free);
  if (!context) throw no_resource("TLS: {}", openssl_error());
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  SSL_CTX_set_options(context.get(), SSL_OP_NO_RENEGOTIATION | SSL_OP_CIPHER_SERVER_PREFERENCE);
  // An idle session holds no buffers; a write may be retried from another address.
  SSL_CTX_set_mode(context.get(),
                   SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_session_cache_mode(context.get(),
                                 SSL_SESS_CACHE_OFF);  // sessions are resumed with tickets, without state here
  SSL_CTX_set_alpn_select_cb(context.get(), choose_protocol, nullptr);
  SSL_CTX_set_default_passwd_cb(context.get(), [](char*, int, int, void*) { return 0; });  // never ask on the terminal
  if (SSL_CTX_use_certificate_chain_file(context.get(), certificate_file.c_str()) != 1) {
    throw invalid("--ssl-certfile {}: not a certificate in PEM: {}", certificate_file, openssl_error());
  }
  if (SSL_CTX_use_PrivateKey_file(context.get(), key_file.c_str(), SSL_FILETYPE_PEM) != 1) {
    throw invalid("--ssl-keyfile {}: not the certificate's private key in PEM, without a passphrase: {}", key_file,
                  openssl_error());
  }
  return context;
}

}  // namespace

void SslDeleter::operator()(ssl_st* session) const { SSL_free(session); }

Tls::Tls(std::string certificate_file, std::string key_file)
    : certificate_file_(std::move(certificate_file)),
      key_file_(std::move(key_file)),
      context_(make_context(certificate_file_, key_file_).release()) {}

Tls::~Tls() { SSL_CTX_free(context_); }

void Tls::reload() {
  Context fresh = make_context(certificate_file_, key_file_);
  const std::lock_guard lock(mutex_);
  SSL_CTX_free(context_);
  context_ = fresh.release();
}

SslSession Tls::session(int socket) const {
  SslSession session = [&] {
    const std::lock_guard lock(mutex_);
    return SslSession(SSL_new(context_));
  }();
  if (!session) throw std::bad_alloc();
  BIO* bio = BIO_new(socket_method());
  if (!bio) throw std::bad_alloc();
  BIO_set_data(bio, reinterpret_cast<void*>(static_cast<intptr_t>(socket)));
  BIO_set_init(bio, 1);
  SSL_set_bio(session.get(), bio, bio);  // the session owns it
  SSL_set_accept_state(session.get());
  return session;
}

}  // namespace quire
