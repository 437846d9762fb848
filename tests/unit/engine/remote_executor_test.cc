// An engine whose executor is elsewhere gives the same answers, even if messages are lost, late or repeated.

#include "engine/remote/remote_executor.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "engine/engine_loop.h"
#include "engine/remote/executor_server.h"
#include "sanitizers.h"
#include "unit/engine/drafters.h"
#include "unit/engine/golden_kinds.h"
#include "unit/engine/loop_answers.h"
#include "unit/engine/seeded_request.h"
#include "unit/engine/tiny_engine.h"

namespace quire {
namespace {

using testing::Answer;
using testing::expect_same;
using testing::random_tokens;

// Of each hundred messages that come or go: how many are dropped, sent twice, and kept until the next one.
struct Faults {
  int dropped = 0, repeated = 0, delayed = 0;
};

class FaultyChannel final : public MessageChannel {
 public:
  FaultyChannel(std::unique_ptr<MessageChannel> real, const Faults& faults, unsigned seed)
      : real_(std::move(real)), faults_(faults), random_(seed) {}

  void send(std::span<const std::byte> message) override {
    if (happens(faults_.dropped)) return;
    real_->send(message);
    if (happens(faults_.repeated)) real_->send(message);
  }
  bool receive(std::vector<std::byte>& message, std::chrono::milliseconds patience) override {
    if (late_.empty() || happens(50)) {
      if (real_->receive(message, patience)) {
        if (happens(faults_.dropped)) return false;
        if (!happens(faults_.delayed)) return true;
        late_.push_back(message);
        return false;
      }
    }
    if (late_.empty()) return false;
    message = late_.front();
    late_.pop_front();
    return true;
  }

 private:
  bool happens(int percent) { return percent > 0 && static_cast<int>(random_() % 100) < percent; }

  std::unique_ptr<MessageChannel> real_;
  const Faults faults_;
  std::mt19937 random_;
  std::deque<std::vector<std::byte>> late_;
};

// A model whose passes are computed by another one, on a thread of its own.
struct RemoteModel {
  explicit RemoteModel(const EngineOptions& o, const Faults& faults = {}) : computing(o), model(o) {
    std::array<int, 2> sockets{};
    if (::socketpair(AF_UNIX, SOCK_STREAM, 0, sockets.data()) != 0) throw std::bad_alloc();
    server = std::thread([this, socket = sockets[1]] {
      SocketChannel channel(socket);
      serve_executor(*computing.local, channel);
    });
    model.local.reset();
    model.remote = std::make_unique<RemoteExecutor>(
        std::make_unique<FaultyChannel>(std::make_unique<SocketChannel>(sockets[0]), faults, 1),
        Patience{.reply = std::chrono::milliseconds(faults.dropped + faults.delayed > 0 ? 40 : 2000)});
  }
  ~RemoteModel() {
    model.remote.reset();
    server.join();
  }

  LoadedModel computing, model;
  std::thread server;
};

std::vector<Answer> run(LoadedModel& model, const std::vector<Request>& requests, EngineStats* stats = nullptr) {
  EngineLoop loop(model);
  std::vector<Answer> answers = testing::loop_answers(loop, model, requests);
  if (stats) loop.write_stats(*stats);
  return answers;
}

std::vector<Request> requests(int count) {
  std::vector<Request> all;
  for (unsigned i = 0; i < static_cast<unsigned>(count); ++i) {
    all.push_back(seeded_request(random_tokens(i % 3, 20 + 7 * static_cast<int>(i)), 40));
    if (i % 2 == 0) all.back().sampling.temperature = 0;
    if (i == 1) all.back().sampling.prompt_logprobs = 1;
    if (i == 3) all.back().pooling = Pooling::kMean;
  }
  return all;
}

void expect_same_answers(const EngineOptions& o, const Faults& faults, EngineStats& stats) {
  const auto all = requests(6);
  LoadedModel local(o);
  RemoteModel remote(o, faults);
  const auto expected = run(local, all), found = run(remote.model, all, &stats);
  for (size_t i = 0; i < all.size(); ++i) {
    expect_same(expected[i], found[i], "request " + std::to_string(i));
    EXPECT_EQ(expected[i].last.embedding, found[i].last.embedding);
    EXPECT_EQ(expected[i].last.usage.accepted_tokens, found[i].last.usage.accepted_tokens);
  }
}

// What an engine does with an executor: drafts by heads, by layers and by another model; states; windows; preemption.
class RemoteExecutors : public ::testing::TestWithParam<testing::Choice> {
 protected:
  static EngineOptions options() {
    EngineOptions o = testing::undrafted_options(3, 128);
    o.speculate_always = true;
    o.num_speculative_tokens = 3;
    GetParam().change(o);
    return o;
  }
};

TEST_P(RemoteExecutors, GiveTheSameAnswers) {
  EngineStats stats;
  const EngineOptions o = options();
  expect_same_answers(o, {}, stats);
  EXPECT_EQ(stats.drafted_tokens > 0, o.speculative != Speculation::kOff);
  EXPECT_EQ(stats.preemptions > 0, o.kv_cache_bytes > 0);
  EXPECT_EQ(stats.store_host_pages > 0, o.host_cache_bytes > 0);
}

TEST_P(RemoteExecutors, SurviveMessagesThatAreLostLateOrRepeated) {
  EngineStats stats;
  expect_same_answers(options(), {.dropped = 5, .repeated = 10, .delayed = 5}, stats);
}

INSTANTIATE_TEST_SUITE_P(
    Uses, RemoteExecutors,
    ::testing::Values(testing::Choice{"plain", [](EngineOptions&) {}},
                      testing::Choice{"ngram", [](EngineOptions& o) { o.speculative = Speculation::kNgram; }},
                      testing::Choice{"draft",
                                      [](EngineOptions& o) {
                                        o.speculative = Speculation::kDraft;
                                        o.draft_model = testing::golden("models/mistral");
                                      }},
                      testing::Choice{"early_exit",
                                      [](EngineOptions& o) {
                                        o.speculative = Speculation::kEarlyExit;
                                        o.early_exit_layers = 1;
                                      }},
                      testing::Choice{"eagle",
                                      [](EngineOptions& o) {
                                        o.speculative = Speculation::kEagle;
                                        o.eagle_head = testing::golden("drafters/eagle");
                                      }},
                      testing::Choice{"medusa",
                                      [](EngineOptions& o) {
                                        o.speculative = Speculation::kMedusa;
                                        o.medusa_heads = testing::golden("drafters/medusa");
                                      }},
                      testing::Choice{"mtp", [](EngineOptions& o) { testing::use_mtp(o, "qwen3_next"); }},
                      testing::Choice{"windows", [](EngineOptions& o) { o.model = testing::golden_kind("gemma2"); }},
                      testing::Choice{"states",
                                      [](EngineOptions& o) {
                                        o.model = testing::golden_kind("qwen3_next");
                                        o.speculative = Speculation::kNgram;
                                      }},
                      testing::Choice{"preemption",
                                      [](EngineOptions& o) { o.kv_cache_bytes = testing::cache_of(o, 1); }},
                      testing::Choice{"page_store",
                                      [](EngineOptions& o) {
                                        o.kv_cache_bytes = testing::cache_of(o, 1);
                                        o.host_cache_bytes = size_t{4} << 20;
                                      }}),
    [](const auto& choice) { return choice.param.name; });

// ---- an executor that is gone

// Says that the other end is gone after some messages.
class EndingChannel final : public MessageChannel {
 public:
  EndingChannel(std::unique_ptr<MessageChannel> real, int messages) : real_(std::move(real)), left_(messages) {}
  void send(std::span<const std::byte> message) override {
    if (left_-- <= 0) throw no_resource("the process at the other end of the connection has ended");
    real_->send(message);
  }
  bool receive(std::vector<std::byte>& message, std::chrono::milliseconds patience) override {
    return real_->receive(message, patience);
  }

 private:
  std::unique_ptr<MessageChannel> real_;
  int left_;
};

TEST(LostExecutor, EndsAllRequestsWithItsError) {
  EngineOptions o = testing::undrafted_options(3, 128);
  o.kv_cache_bytes = testing::cache_of(o, 1);
  o.host_cache_bytes = size_t{4} << 20;
  RemoteModel remote(o);
  std::array<int, 2> sockets{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, sockets.data()), 0);
  LoadedModel model(o);
  std::thread server([&model, socket = sockets[1]] {
    SocketChannel channel(socket);
    serve_executor(*model.local, channel);
  });
  remote.model.remote = std::make_unique<RemoteExecutor>(
      std::make_unique<EndingChannel>(std::make_unique<SocketChannel>(sockets[0]), 12));
  for (const Answer& answer : run(remote.model, requests(6))) {
    EXPECT_EQ(answer.ends, 1);
    if (answer.last.finish == FinishReason::kLength || answer.last.finish == FinishReason::kStop) continue;
    EXPECT_EQ(answer.last.finish, FinishReason::kError);
    EXPECT_EQ(answer.last.error, "the process at the other end of the connection has ended");
  }
  remote.model.remote.reset();
  server.join();
}

TEST(LostExecutor, IsOneThatDoesNotAnswer) {
  std::array<int, 2> sockets{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, sockets.data()), 0);
  const SocketChannel silent(sockets[1]);
  RemoteExecutor executor(std::make_unique<SocketChannel>(sockets[0]),
                          {.reply = std::chrono::milliseconds(5), .most_tries = 3});
  try {
    executor.commit({.advances = {}, .copies = {{.of_state = false, .from = 0, .to = 1}}});
    FAIL();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "the process that computes does not answer");
  }
}

// ---- in a process of its own

TEST(ExecutorProcesses, GiveTheSameAnswers) {
  if (testing::kThreadSanitizer) GTEST_SKIP() << "ThreadSanitizer does not follow a child that starts threads";
  for (const std::string kv : {"auto", "int4", "fp8"}) {
    EngineOptions o = testing::tiny_options();
    o.kv_cache_dtype = kv;
    const auto all = requests(6);
    Engine local(o);
    o.executor_process = true;
    Engine remote(o);
    const auto expected = testing::answers_together(local, all), found = testing::answers_together(remote, all);
    for (size_t i = 0; i < all.size(); ++i)
      expect_same(expected[i][0], found[i][0], kv + " cache, request " + std::to_string(i));
  }
}

}  // namespace
}  // namespace quire
