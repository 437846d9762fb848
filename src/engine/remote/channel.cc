#include "engine/remote/channel.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "base/error.h"

namespace quire {
namespace {

Error gone() { return no_resource("the process at the other end of the connection has ended"); }

}  // namespace

SocketChannel::~SocketChannel() { ::close(socket_); }

void SocketChannel::write(std::span<const std::byte> from) const {
  while (!from.empty()) {
    const ssize_t sent = ::send(socket_, from.data(), from.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) throw gone();
    from = from.subspan(static_cast<size_t>(sent));
  }
}

void SocketChannel::read(std::span<std::byte> to) const {
  while (!to.empty()) {
    const ssize_t received = ::recv(socket_, to.data(), to.size(), 0);
    if (received < 0 && errno == EINTR) continue;
    if (received <= 0) throw gone();
    to = to.subspan(static_cast<size_t>(received));
  }
}

void SocketChannel::send(std::span<const std::byte> message) {
  const uint64_t size = message.size();
  write(std::as_bytes(std::span(&size, 1)));
  write(message);
}

bool SocketChannel::receive(std::vector<std::byte>& message, std::chrono::milliseconds patience) {
  pollfd ready{.fd = socket_, .events = POLLIN, .revents = 0};
  const int found = ::poll(&ready, 1, static_cast<int>(patience.count()));
  if (found == 0 || (found < 0 && errno == EINTR)) return false;
  uint64_t size = 0;
  read(std::as_writable_bytes(std::span(&size, 1)));
  message.resize(size);
  read(message);
  return true;
}

}  // namespace quire
