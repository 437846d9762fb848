#include "server/http/channel.h"

#include <algorithm>
#include <array>
#include <boost/asio/buffer.hpp>

namespace quire {
namespace {

namespace asio = boost::asio;

constexpr size_t kReadBytes = 16 << 10;  // one read: a TLS record, and more than most requests
constexpr size_t kLingerBytes = 64 << 20;
constexpr std::chrono::seconds kLinger{2};

}  // namespace

Channel::Channel(Socket socket, const Tls* tls, size_t max_input)
    : stream_(std::move(socket), tls), input_(max_input), timer_(stream_.socket().get_executor()) {}

asio::awaitable<Channel::Wait> Channel::read_more(Clock::time_point deadline) {
  for (;;) {
    const ByteStream::State state = receive();
    if (state == ByteStream::State::kDone) co_return Wait::kReady;
    if (state == ByteStream::State::kEnd || state == ByteStream::State::kBroken) co_return Wait::kGone;
    const Wait waited = co_await wait(state, deadline);
    if (waited != Wait::kReady) co_return waited;
  }
}

// The buffer grows only once there are bytes to put into it.
ByteStream::State Channel::receive() {
  std::array<char, kReadBytes> bytes;
  const size_t room = std::min(bytes.size(), input_.max_size() - input_.size());
  if (room == 0) return ByteStream::State::kBroken;
  const ByteStream::Transfer read = stream_.read(std::span(bytes).first(room));
  input_.commit(asio::buffer_copy(input_.prepare(read.bytes), asio::buffer(bytes, read.bytes)));
  return read.state;
}

asio::awaitable<Channel::Wait> Channel::wait(ByteStream::State need, Clock::time_point deadline) {
  if (gone_) co_return Wait::kGone;
  timed_out_ = false;
  timer_.expires_at(deadline);
  timer_.async_wait([self = shared_from_this()](boost::system::error_code) {
    // A wait that has ended meanwhile has set the timer anew.
    if (self->timer_.expiry() > Clock::now()) return;
    self->timed_out_ = true;
    self->stream_.cancel();
  });
  const auto type = need == ByteStream::State::kWantsWrite ? Socket::wait_write : Socket::wait_read;
  auto [error] = co_await stream_.socket().async_wait(type, kTuple);
  timer_.expires_at(Clock::time_point::max());
  co_return !error ? Wait::kReady : timed_out_ ? Wait::kTimeout : Wait::kGone;
}

asio::awaitable<bool> Channel::write(std::string_view bytes, std::chrono::milliseconds time) {
  const auto deadline = Clock::now() + time;
  while (!bytes.empty() && !gone_) {
    const ByteStream::Transfer written = stream_.write(bytes);
    bytes.remove_prefix(written.bytes);
    if (written.state == ByteStream::State::kDone) continue;
    gone_ = written.state == ByteStream::State::kEnd || written.state == ByteStream::State::kBroken;
    if (gone_) break;
    const Wait waited = co_await wait(written.state, deadline);
    gone_ = gone_ || waited != Wait::kReady;
  }
  co_return !gone_;
}

asio::awaitable<void> Channel::linger() {
  stream_.end_writing();
  const auto deadline = Clock::now() + kLinger;
  for (size_t total = 0; total < kLingerBytes;) {
    const ByteStream::Transfer discarded = stream_.discard();
    if (discarded.state == ByteStream::State::kEnd || discarded.state == ByteStream::State::kBroken) break;
    total += discarded.bytes;
    if (discarded.state == ByteStream::State::kDone) continue;
    const Wait waited = co_await wait(discarded.state, deadline);
    if (waited != Wait::kReady) break;
  }
}

}  // namespace quire
