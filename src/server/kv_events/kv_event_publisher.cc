#include "server/kv_events/kv_event_publisher.h"

#include <spdlog/spdlog.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <deque>
#include <iterator>
#include <mutex>
#include <new>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>
#include <zmq.hpp>

#include "base/error.h"
#include "base/signals.h"
#include "server/kv_events/event_batch.h"

namespace quire {
namespace {

constexpr size_t kMostWaitingEvents = 100'000;           // events; a step rarely has more than a hundred
constexpr size_t kReplayBytes = size_t{64} << 20;        // all batches that are kept
constexpr uint64_t kEndOfReplay = ~uint64_t{0};          // -1
constexpr std::chrono::milliseconds kLastMessages{500};  // for subscribers to receive them, when the publisher ends

using SequenceNumber = std::array<char, 8>;

SequenceNumber big_endian(uint64_t value) {
  SequenceNumber bytes;
  for (size_t i = bytes.size(); i-- > 0; value >>= 8) bytes[i] = static_cast<char>(value & 0xff);
  return bytes;
}

uint64_t read_big_endian(const zmq::message_t& frame) {
  uint64_t value = 0;
  for (size_t i = 0; i < frame.size(); ++i) value = value << 8 | frame.data<unsigned char>()[i];
  return value;
}

double unix_now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

void open_socket(zmq::socket_t& socket, const std::string& endpoint) {
  try {
    if (endpoint.find('[') != endpoint.npos) socket.set(zmq::sockopt::ipv6, true);
    if (listens_at(endpoint)) {
      socket.bind(endpoint);
    } else {
      socket.connect(endpoint);
    }
  } catch (const zmq::error_t& error) {
    throw no_resource("KV events cannot be published at {}: {}", endpoint, error.what());
  }
  if (leaves_machine(endpoint))
    spdlog::warn("KV events at {} tell every program that reaches it the tokens of all prompts", endpoint);
}

// Wakes a thread that polls.
class WakeUp {
 public:
  WakeUp() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (fd_ < 0) throw no_resource("no file descriptor is left for KV events");
  }
  ~WakeUp() { ::close(fd_); }
  WakeUp(const WakeUp&) = delete;
  WakeUp& operator=(const WakeUp&) = delete;

  int fd() const { return fd_; }
  void ring() const noexcept { ::eventfd_write(fd_, 1); }
  void quiet() const noexcept {
    eventfd_t rung = 0;
    ::eventfd_read(fd_, &rung);
  }

 private:
  const int fd_;
};

}  // namespace

struct KvEventPublisher::State {
  explicit State(KvEventOptions given) : options(std::move(given)) {
    publisher.set(zmq::sockopt::sndhwm, options.hwm);
    publisher.set(zmq::sockopt::linger, static_cast<int>(kLastMessages.count()));
    replays.set(zmq::sockopt::linger, 0);
    replays.set(zmq::sockopt::sndhwm, static_cast<int>(options.buffer_steps) + 1);  // one whole replay
    open_socket(publisher, options.endpoint);
    if (!options.replay_endpoint.empty()) open_socket(replays, options.replay_endpoint);
    const BlockSignals leave_signals_to_the_program;
    thread = std::thread([this] { run(); });
  }

  // ---- The engine's side

  template <class Make>
  void add(const Make& make) noexcept {
    if (incomplete) return;
    try {
      step.push_back(make());
    } catch (const std::bad_alloc&) {
      incomplete = true;
    }
  }

  void hand_over() noexcept {
    if (step.empty() && !incomplete) return;
    const std::lock_guard lock(mutex);
    try {
      if (waiting.size() + step.size() > kMostWaitingEvents) throw std::bad_alloc();
      waiting.insert(waiting.end(), std::move_iterator(step.begin()), std::move_iterator(step.end()));
    } catch (const std::bad_alloc&) {
      incomplete = true;
    }
    if (std::exchange(incomplete, false)) {
      waiting.clear();
      lost = true;
    }
    step.clear();
    wake_up.ring();
  }

  // ---- The publisher's thread

  void run() {
    std::vector<KvEvent> events;
    for (bool stop = false; !stop;) {
      try {
        std::array<zmq::pollitem_t, 2> sources{
            {{nullptr, wake_up.fd(), ZMQ_POLLIN, 0}, {replays.handle(), 0, ZMQ_POLLIN, 0}}};
        zmq::poll(sources.data(), options.replay_endpoint.empty() ? 1 : 2, std::chrono::milliseconds(-1));
        if (sources[1].revents & ZMQ_POLLIN) replay();
        wake_up.quiet();
        {
          const std::lock_guard lock(mutex);
          events.clear();
          events.swap(waiting);
          if (std::exchange(lost, false)) {
            ++counts->lost;
            events.insert(events.begin(), {.kind = KvEvent::Kind::kCleared});
          }
          stop = stopping;
        }
        if (!events.empty()) publish(encode_kv_events(events, unix_now(), options.format));
      } catch (const std::exception& error) {  // out of memory: what the events said is lost
        spdlog::error("KV events were not published: {}", error.what());
        const std::lock_guard lock(mutex);
        lost = true;
      }
    }
  }

  void publish(std::vector<uint8_t> batch) {
    const SequenceNumber number = big_endian(next);
    publisher.send(zmq::buffer(options.topic), zmq::send_flags::sndmore);
    publisher.send(zmq::buffer(number), zmq::send_flags::sndmore);
    publisher.send(zmq::buffer(batch), zmq::send_flags::none);
    ++next;
    ++counts->batches;
    if (options.replay_endpoint.empty()) return;
    kept_bytes += batch.size();
    kept.push_back(std::move(batch));
    while (kept.size() > options.buffer_steps || kept_bytes > kReplayBytes) {
      kept_bytes -= kept.front().size();
      kept.pop_front();
    }
  }

  // One request; a malformed one gets no answer.
  void replay() {
    std::vector<zmq::message_t> request;
    do {
      request.emplace_back();
      if (!replays.recv(request.back(), zmq::recv_flags::dontwait)) return;
    } while (request.back().more());
    if (request.size() != 3 || request[2].size() != sizeof(SequenceNumber)) return;
    const uint64_t first = next - kept.size(), wanted = read_big_endian(request[2]);
    for (uint64_t number = std::max(first, wanted); number < next; ++number)
      answer(request[0], number, kept[number - first]);
    answer(request[0], kEndOfReplay, {});
  }

  // Never waits: what finds no room is dropped.
  void answer(const zmq::message_t& client, uint64_t number, std::span<const uint8_t> batch) {
    constexpr auto more = zmq::send_flags::sndmore | zmq::send_flags::dontwait;
    replays.send(zmq::buffer(client.data(), client.size()), more);
    replays.send(zmq::message_t(), more);
    replays.send(zmq::buffer(big_endian(number)), more);
    replays.send(zmq::buffer(batch.data(), batch.size()), zmq::send_flags::dontwait);
  }

  const KvEventOptions options;
  const std::shared_ptr<KvEventCounts> counts = std::make_shared<KvEventCounts>();
  const WakeUp wake_up;
  zmq::context_t context{1};
  zmq::socket_t publisher{context, zmq::socket_type::pub}, replays{context, zmq::socket_type::router};

  std::vector<KvEvent> step;  // of the engine's thread: told since the last step ended
  bool incomplete = false;    // likewise: memory was short

  std::mutex mutex;  // guards the following
  std::vector<KvEvent> waiting;
  bool lost = false;  // events before those in `waiting`
  bool stopping = false;

  uint64_t next = 0;  // the following are the publisher's
  std::deque<std::vector<uint8_t>> kept;
  size_t kept_bytes = 0;
  std::thread thread;
};

KvEventPublisher::KvEventPublisher(const KvEventOptions& options) : state_(std::make_unique<State>(options)) {}

KvEventPublisher::~KvEventPublisher() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stopping = true;
  }
  state_->wake_up.ring();
  state_->thread.join();
}

void KvEventPublisher::stored(const CachedPage& page) noexcept {
  state_->add([&] {
    return KvEvent{.kind = KvEvent::Kind::kStored,
                   .hash = page.hash,
                   .parent = page.parent,
                   .tokens = TokenIds(page.tokens.begin(), page.tokens.end()),
                   .adapter = std::string(page.adapter)};
  });
}

void KvEventPublisher::removed(uint64_t hash) noexcept {
  state_->add([&] { return KvEvent{.kind = KvEvent::Kind::kRemoved, .hash = hash}; });
}

void KvEventPublisher::step_ended() noexcept { state_->hand_over(); }

void KvEventPublisher::cleared() noexcept {
  state_->add([] { return KvEvent{.kind = KvEvent::Kind::kCleared}; });
  state_->hand_over();
}

std::shared_ptr<const KvEventCounts> KvEventPublisher::counts() const { return state_->counts; }

}  // namespace quire
