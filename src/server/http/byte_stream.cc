#include "server/http/byte_stream.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <array>
#include <boost/asio/ip/tcp.hpp>
#include <cerrno>
#include <limits>

namespace quire {
namespace {

using boost::asio::ip::tcp;
using ErrorCode = boost::system::error_code;

ByteStream::Transfer transferred(ssize_t result, ByteStream::State otherwise) {
  if (result > 0) return {ByteStream::State::kDone, static_cast<size_t>(result)};
  if (result == 0) return {ByteStream::State::kEnd};
  return {errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? otherwise : ByteStream::State::kBroken};
}

int bounded(size_t bytes) {
  return static_cast<int>(std::min<size_t>(bytes, static_cast<size_t>(std::numeric_limits<int>::max())));
}

}  // namespace

ByteStream::ByteStream(Socket socket, const Tls* tls) : socket_(std::move(socket)) {
  ErrorCode ignored;
  socket_.set_option(tcp::no_delay(true), ignored);  // a Unix socket has no such option
  socket_.native_non_blocking(true, ignored);
  if (tls) session_ = tls->session(socket_.native_handle());
}

// After an OpenSSL call that did not succeed.
ByteStream::State ByteStream::state_of(int result) {
  switch (SSL_get_error(session_.get(), result)) {
    case SSL_ERROR_WANT_READ:
      return State::kWantsRead;
    case SSL_ERROR_WANT_WRITE:
      return State::kWantsWrite;
    case SSL_ERROR_ZERO_RETURN:  // the client's close_notify
      return State::kEnd;
    default:
      spoke_http_ = !shaken_ && ERR_GET_REASON(ERR_peek_error()) == SSL_R_HTTP_REQUEST;
      ERR_clear_error();
      if (!shaken_) {
        session_.reset();
      } else {
        SSL_set_quiet_shutdown(session_.get(), 1);  // a broken session sends no close_notify
      }
      return State::kBroken;
  }
}

ByteStream::State ByteStream::handshake() {
  ERR_clear_error();  // the queue belongs to the thread: an error that another session left would look like ours
  const int result = SSL_do_handshake(session_.get());
  if (result != 1) return state_of(result);
  shaken_ = true;
  return State::kDone;
}

ByteStream::Transfer ByteStream::read(std::span<char> to) {
  if (!session_) {
    return transferred(::recv(socket_.native_handle(), to.data(), to.size(), 0), State::kWantsRead);
  }
  ERR_clear_error();
  const int result = SSL_read(session_.get(), to.data(), bounded(to.size()));
  return result > 0 ? Transfer{State::kDone, static_cast<size_t>(result)} : Transfer{state_of(result)};
}

ByteStream::Transfer ByteStream::write(std::string_view bytes) {
  if (!session_) {
    return transferred(::send(socket_.native_handle(), bytes.data(), bytes.size(), MSG_NOSIGNAL), State::kWantsWrite);
  }
  ERR_clear_error();
  const int result = SSL_write(session_.get(), bytes.data(), bounded(bytes.size()));
  return result > 0 ? Transfer{State::kDone, static_cast<size_t>(result)} : Transfer{state_of(result)};
}

void ByteStream::end_writing() {
  if (session_ && shaken_) {
    ERR_clear_error();
    SSL_shutdown(session_.get());  // best effort: if the socket is full, the client gets no close_notify
  }
  ErrorCode ignored;
  socket_.shutdown(Socket::shutdown_send, ignored);
}

ByteStream::Transfer ByteStream::discard() {
  std::array<char, 16384> bytes;
  return transferred(::recv(socket_.native_handle(), bytes.data(), bytes.size(), 0), State::kWantsRead);
}

void ByteStream::cancel() {
  ErrorCode ignored;
  socket_.cancel(ignored);
}

void ByteStream::close() {
  end_writing();
  ErrorCode ignored;
  socket_.close(ignored);
}

}  // namespace quire
