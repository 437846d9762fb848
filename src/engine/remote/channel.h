// Whole messages between two processes.
#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <vector>

namespace quire {

class MessageChannel {
 public:
  virtual ~MessageChannel() = default;
  // Both throw Error (kResource) if the other end is gone.
  virtual void send(std::span<const std::byte> message) = 0;
  // Replaces `message` by the next one. false: none came in that time.
  virtual bool receive(std::vector<std::byte>& message, std::chrono::milliseconds patience) = 0;
};

// A connected stream socket, which it owns. Each message follows its size, a uint64 in this machine's byte order.
class SocketChannel final : public MessageChannel {
 public:
  explicit SocketChannel(int socket) : socket_(socket) {}
  ~SocketChannel() override;
  SocketChannel(const SocketChannel&) = delete;
  SocketChannel& operator=(const SocketChannel&) = delete;

  void send(std::span<const std::byte> message) override;
  bool receive(std::vector<std::byte>& message, std::chrono::milliseconds patience) override;

 private:
  void read(std::span<std::byte> to) const;
  void write(std::span<const std::byte> from) const;

  int socket_;
};

}  // namespace quire
