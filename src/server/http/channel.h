// A client's byte stream with deadlines: everything a connection reads and writes goes through it.
#pragma once

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <chrono>
#include <memory>
#include <string_view>

#include "server/http/byte_stream.h"

namespace quire {

// Awaits an operation whose errors are values.
inline constexpr auto kTuple = boost::asio::as_tuple(boost::asio::use_awaitable);

// Lives on its socket's executor, a strand. Shared, because a timer that has just expired may outlive the connection.
class Channel : public std::enable_shared_from_this<Channel> {
 public:
  using Clock = std::chrono::steady_clock;
  enum class Wait : uint8_t { kReady, kTimeout, kGone };

  // max_input: bytes that may wait in input().
  Channel(Socket socket, const Tls* tls, size_t max_input);

  ByteStream& stream() { return stream_; }
  boost::asio::any_io_executor executor() { return stream_.socket().get_executor(); }
  boost::beast::flat_buffer& input() { return input_; }  // received and not yet parsed

  // Once true, nothing more is read or written.
  bool gone() const { return gone_; }
  void give_up() { gone_ = true; }

  // Appends at least one byte to input(). kGone also when the client has closed its sending side.
  boost::asio::awaitable<Wait> read_more(Clock::time_point deadline);
  // The same without waiting.
  ByteStream::State receive();

  // Waits until the stream is ready for what it needs.
  boost::asio::awaitable<Wait> wait(ByteStream::State need, Clock::time_point deadline);

  // Writes all bytes within the time. false: the client has gone.
  boost::asio::awaitable<bool> write(std::string_view bytes, std::chrono::milliseconds time);

  // Closes the sending side and drops what still comes for a while. Closing at once while the client still sends would
  // reset the connection, and the client would lose the answer.
  boost::asio::awaitable<void> linger();

 private:
  ByteStream stream_;
  boost::beast::flat_buffer input_;
  boost::asio::steady_timer timer_;  // limits wait()
  bool timed_out_ = false, gone_ = false;
};

}  // namespace quire
