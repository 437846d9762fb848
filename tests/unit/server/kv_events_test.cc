// KV events: their bytes, the flags, and the sockets.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>
#include <zmq.hpp>

#include "quire/error.h"
#include "server/kv_events/event_batch.h"
#include "server/kv_events/kv_event_publisher.h"

namespace quire {
namespace {

using Wire = nlohmann::json;

KvEvent stored(uint64_t hash, std::optional<uint64_t> parent, TokenIds tokens, std::string adapter = {}) {
  return {.kind = KvEvent::Kind::kStored,
          .hash = hash,
          .parent = parent,
          .tokens = std::move(tokens),
          .adapter = std::move(adapter)};
}
KvEvent removed(uint64_t hash) { return {.kind = KvEvent::Kind::kRemoved, .hash = hash}; }

Wire decoded(const std::vector<KvEvent>& events, KvEventFormat format = KvEventFormat::kArray) {
  return Wire::from_msgpack(encode_kv_events(events, 1.5, format));
}

TEST(KvEvents, HaveTheLayoutOfVllm) {
  const uint64_t large = 0xfedc'ba98'7654'3210;
  EXPECT_EQ(decoded({stored(large, std::nullopt, {1, 2})}),
            Wire::parse(R"([1.5, [["BlockStored", [18364758544493064720], null, [1, 2], 2, null, "GPU", null]], 0])"));
  EXPECT_EQ(decoded({stored(2, 1, {5, 6}, "poet"), {.kind = KvEvent::Kind::kCleared}, removed(7)}),
            Wire::parse(R"([1.5, [["BlockStored", [2], 1, [5, 6], 2, null, "GPU", "poet"], ["AllBlocksCleared"],
                                  ["BlockRemoved", [7], "GPU"]], 0])"));
}

TEST(KvEvents, AreMapsIfWanted) {
  const std::vector<KvEvent> events = {stored(2, 1, {5, 6}, "poet"), {.kind = KvEvent::Kind::kCleared}, removed(7)};
  EXPECT_EQ(
      decoded(events, KvEventFormat::kMap),
      Wire::parse(R"([1.5, [{"type": "BlockStored", "block_hashes": [2], "parent_block_hash": 1, "token_ids": [5, 6],
                                   "block_size": 2, "lora_id": null, "medium": "GPU", "lora_name": "poet"},
                                  {"type": "AllBlocksCleared"},
                                  {"type": "BlockRemoved", "block_hashes": [7], "medium": "GPU"}], 0])"));
}

TEST(KvEvents, JoinPagesThatFollowEachOther) {
  EXPECT_EQ(decoded({stored(2, 1, {5, 6}), stored(3, 2, {7, 8}), stored(9, 1, {0, 0}), removed(3), removed(2)})[1],
            Wire::parse(R"([["BlockStored", [2, 3], 1, [5, 6, 7, 8], 2, null, "GPU", null],
                            ["BlockStored", [9], 1, [0, 0], 2, null, "GPU", null],
                            ["BlockRemoved", [3, 2], "GPU"]])"));
  EXPECT_EQ(decoded({stored(2, 1, {5}, "poet"), stored(3, 2, {7})})[1].size(), 2u) << "of two adapters";
}

TEST(KvEvents, TakeEndpointsAndSayWhoCanReachThem) {
  for (const char* good :
       {"tcp://127.0.0.1:5557", "tcp://*:1", "tcp://[::1]:65535", "ipc:///run/quire/kv", "tcp://epp:5557"})
    EXPECT_NO_THROW(check_kv_endpoint(good)) << good;
  for (const char* bad : {"", "5557", "tcp://127.0.0.1", "tcp://:5557", "tcp://*:0", "tcp://*:65536", "tcp://*:5557x",
                          "ipc://", "udp://*:5"})
    EXPECT_THROW(check_kv_endpoint(bad), Error) << bad;
  EXPECT_TRUE(listens_at("tcp://*:5557") && listens_at("tcp://127.0.0.1:5557") && listens_at("ipc:///tmp/x"));
  EXPECT_FALSE(listens_at("tcp://epp.llm-d:5557"));
  EXPECT_TRUE(leaves_machine("tcp://*:5557") && leaves_machine("tcp://epp.llm-d:5557"));
  EXPECT_FALSE(leaves_machine("tcp://localhost:5557") || leaves_machine("tcp://[::1]:5557") ||
               leaves_machine("ipc:///tmp/x"));
}

TEST(KvEvents, ReadVllmsConfig) {
  const KvEventOptions all = read_kv_events_config(
      R"({"enable_kv_cache_events": true, "publisher": "zmq", "endpoint": "tcp://*:7", "replay_endpoint": "tcp://*:8",
          "topic": "kv@a@b", "buffer_steps": 9, "hwm": 10, "max_queue_size": 11})",
      {});
  EXPECT_EQ(all.endpoint, "tcp://*:7");
  EXPECT_EQ(all.replay_endpoint, "tcp://*:8");
  EXPECT_EQ(all.topic, "kv@a@b");
  EXPECT_EQ(all.buffer_steps, 9u);
  EXPECT_EQ(all.hwm, 10);
  EXPECT_EQ(read_kv_events_config("{}", {}).endpoint, "tcp://127.0.0.1:5557")
      << "only this machine unless told otherwise";
  EXPECT_EQ(read_kv_events_config(R"({"topic": "x"})", {.endpoint = "ipc:///a"}).endpoint, "ipc:///a");
  for (const char* off : {R"({"publisher": "null"})", R"({"enable_kv_cache_events": false})"})
    EXPECT_EQ(read_kv_events_config(off, {.endpoint = "tcp://*:7"}).endpoint, "") << off;
  for (const char* bad :
       {"[]", "{", R"({"publisher": "kafka"})", R"({"endpoint": 5})", R"({"hwm": 0})", R"({"hwm": "9"})",
        R"({"buffer_steps": 0})", R"({"end_point": "tcp://*:7"})", R"({"endpoint": "here"})"})
    EXPECT_THROW(read_kv_events_config(bad, {}), Error) << bad;
}

// Endpoints in a folder of their own, and a subscriber.
class KvEventSockets : public testing::Test {
 protected:
  KvEventSockets() {
    std::filesystem::create_directories(folder_);
    options_.endpoint = "ipc://" + (folder_ / "events").string();
    options_.replay_endpoint = "ipc://" + (folder_ / "replay").string();
    options_.topic = "kv";
    subscriber_.set(zmq::sockopt::rcvtimeo, 20'000);
    subscriber_.set(zmq::sockopt::subscribe, "");
  }
  ~KvEventSockets() override { std::filesystem::remove_all(folder_); }

  // A subscriber may have a message before the publisher has counted it.
  static void wait_for_batches(const KvEventPublisher& publisher, uint64_t count) {
    while (publisher.counts()->batches < count) std::this_thread::yield();
  }
  // Ends the step, and waits until it is published: several steps may go into one message.
  static void end_step(KvEventPublisher& publisher) {
    const uint64_t before = publisher.counts()->batches;
    publisher.step_ended();
    wait_for_batches(publisher, before + 1);
  }
  // Tells of single pages until the subscriber has received one: until then it was not connected. Returns how many.
  uint64_t connect(KvEventPublisher& publisher) {
    subscriber_.connect(options_.endpoint);
    subscriber_.set(zmq::sockopt::rcvtimeo, 20);
    for (uint64_t told = 1;; ++told) {
      publisher.removed(0);
      end_step(publisher);
      const auto message = receive(subscriber_);
      if (message.empty()) continue;
      subscriber_.set(zmq::sockopt::rcvtimeo, 20'000);
      for (uint64_t number = number_of(message[1]); number + 1 < told;) number = number_of(receive(subscriber_)[1]);
      return told;
    }
  }
  static std::vector<zmq::message_t> receive(zmq::socket_t& socket) {
    std::vector<zmq::message_t> frames(1);
    if (!socket.recv(frames[0])) return {};
    while (frames.back().more()) {
      frames.emplace_back();
      EXPECT_TRUE(socket.recv(frames.back()));
    }
    return frames;
  }
  static uint64_t number_of(const zmq::message_t& frame) {
    uint64_t value = 0;
    for (size_t i = 0; i < frame.size(); ++i) value = value << 8 | frame.data<uint8_t>()[i];
    return value;
  }
  static Wire batch_of(const zmq::message_t& frame) {
    return Wire::from_msgpack(frame.data<uint8_t>(), frame.data<uint8_t>() + frame.size());
  }

  const std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("quire-kv-events-" + std::to_string(::getpid()));
  KvEventOptions options_;
  zmq::context_t context_;
  zmq::socket_t subscriber_{context_, zmq::socket_type::sub};
};

TEST_F(KvEventSockets, SendEachStepAsOneMessage) {
  KvEventPublisher publisher(options_);
  const uint64_t before = connect(publisher);
  const TokenIds tokens = {3, 4};
  publisher.stored({.hash = 8, .parent = 7, .tokens = tokens, .adapter = "poet"});
  publisher.removed(5);
  end_step(publisher);
  publisher.step_ended();  // nothing happened: no message
  const auto first = receive(subscriber_);
  publisher.cleared();
  const auto second = receive(subscriber_);
  ASSERT_EQ(first.size(), 3u);
  EXPECT_EQ(first[0].to_string(), "kv");
  EXPECT_EQ(first[1].size(), 8u);
  EXPECT_EQ(number_of(first[1]), before);
  EXPECT_EQ(batch_of(first[2])[1],
            Wire::parse(R"([["BlockStored", [8], 7, [3, 4], 2, null, "GPU", "poet"], ["BlockRemoved", [5], "GPU"]])"));
  EXPECT_EQ(number_of(second[1]), before + 1);
  EXPECT_EQ(batch_of(second[2])[1], Wire::parse(R"([["AllBlocksCleared"]])"));
  wait_for_batches(publisher, before + 2);
  EXPECT_EQ(publisher.counts()->batches, before + 2);
  EXPECT_EQ(publisher.counts()->lost, 0u);
}

TEST_F(KvEventSockets, ReplayWhatIsStillKept) {
  options_.buffer_steps = 3;
  KvEventPublisher publisher(options_);
  const uint64_t count = connect(publisher) + 5;
  for (int i = 0; i < 5; ++i) {
    publisher.removed(static_cast<uint64_t>(100 + i));
    end_step(publisher);
  }
  zmq::socket_t client(context_, zmq::socket_type::dealer);
  client.set(zmq::sockopt::rcvtimeo, 20'000);
  client.connect(options_.replay_endpoint);
  const auto ask = [&](std::string_view number) {
    client.send(zmq::message_t(), zmq::send_flags::sndmore);
    client.send(zmq::buffer(number), zmq::send_flags::none);
  };
  ask("short");  // gets no answer
  ask(std::string_view("\0\0\0\0\0\0\0\0", 8));
  for (uint64_t i = 0; i < 3; ++i) {
    const auto message = receive(client);
    ASSERT_EQ(message.size(), 3u);
    EXPECT_EQ(message[0].size(), 0u);
    EXPECT_EQ(number_of(message[1]), count - 3 + i);
    EXPECT_EQ(batch_of(message[2])[1][0][1][0], 102 + i);
  }
  const auto end = receive(client);
  EXPECT_EQ(number_of(end[1]), UINT64_MAX);
  EXPECT_EQ(end[2].size(), 0u);
  ask(std::string_view("\xff\0\0\0\0\0\0\0", 8));  // from the future: only the end
  EXPECT_EQ(number_of(receive(client)[1]), UINT64_MAX);
}

TEST_F(KvEventSockets, RefuseAnEndpointInUse) {
  const std::string port = "tcp://127.0.0.1:";
  zmq::socket_t other(context_, zmq::socket_type::pub);
  other.bind("tcp://127.0.0.1:*");
  options_.endpoint = other.get(zmq::sockopt::last_endpoint);
  try {
    KvEventPublisher publisher(options_);
    FAIL() << options_.endpoint;
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(options_.endpoint + ": Address already in use"), std::string::npos)
        << error.what();
  }
}

TEST_F(KvEventSockets, NeverWaitForASubscriber) {
  options_.hwm = 1;
  subscriber_.set(zmq::sockopt::rcvhwm, 1);
  KvEventPublisher publisher(options_);
  connect(publisher);
  const TokenIds tokens(1000, 7);
  for (uint64_t page = 0; page < 500; ++page) {  // 2 MB that nobody reads
    publisher.stored({.hash = page, .tokens = tokens});
    end_step(publisher);
  }
  EXPECT_EQ(publisher.counts()->lost, 0u);
}

TEST_F(KvEventSockets, SayThatAllIsGoneWhenEventsAreLost) {
  KvEventPublisher publisher(options_);
  connect(publisher);
  for (uint64_t page = 0; page <= 100'000; ++page) publisher.removed(page);
  end_step(publisher);
  EXPECT_EQ(batch_of(receive(subscriber_)[2])[1], Wire::parse(R"([["AllBlocksCleared"]])"));
  EXPECT_EQ(publisher.counts()->lost, 1u);
  publisher.removed(3);
  end_step(publisher);
  EXPECT_EQ(batch_of(receive(subscriber_)[2])[1], Wire::parse(R"([["BlockRemoved", [3], "GPU"]])"));
}

}  // namespace
}  // namespace quire
