// AnswerQueue: readers at their own pace get the answers that callbacks get.

#include "quire/answer_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <thread>
#include <vector>

#include "unit/engine/tiny_engine.h"

namespace quire {
namespace {

using namespace std::chrono_literals;
using testing::answers;
using testing::expect_same;
using testing::random_tokens;
using testing::tiny_options;
using Ticket = AnswerQueue::Ticket;

Request request_of(unsigned seed, int tokens, int n = 1) {
  return {.prompt = random_tokens(seed, 5 + static_cast<int>(seed)),
          .sampling = {.seed = seed, .max_tokens = tokens, .ignore_eos = true, .logprobs = 2, .n = n}};
}

// Reads all open answers; `pause` after each piece.
std::map<Ticket, testing::Answers> read_all(AnswerQueue& queue, std::chrono::milliseconds pause = 0ms) {
  std::map<Ticket, testing::Answers> all;
  while (queue.open() > 0) {
    for (const Ticket ticket : queue.wait(1min)) {
      for (const Output& piece : queue.take(ticket)) {
        testing::Answers& choices = all[ticket];
        choices.resize(std::max(choices.size(), static_cast<size_t>(piece.choice) + 1));
        choices[static_cast<size_t>(piece.choice)].add(piece);
      }
      std::this_thread::sleep_for(pause);
    }
  }
  return all;
}

TEST(AnswerQueue, GivesTheAnswersOfCallbacksToFastAndSlowReaders) {
  Engine engine(tiny_options());
  for (const auto pause : {0ms, 5ms}) {
    AnswerQueue queue(engine);
    std::map<Ticket, Request> requests;
    for (unsigned seed = 1; seed <= 8; ++seed) {
      const Request request = request_of(seed, 20, seed % 3 == 0 ? 2 : 1);
      requests[queue.submit(request)] = request;
    }
    const auto got = read_all(queue, pause);
    ASSERT_EQ(got.size(), requests.size());
    for (const auto& [ticket, request] : requests) {
      const testing::Answers expected = answers(engine, request);
      ASSERT_EQ(got.at(ticket).size(), expected.size());
      for (size_t i = 0; i < expected.size(); ++i) expect_same(expected[i], got.at(ticket)[i]);
    }
  }
}

TEST(AnswerQueue, AnnouncesOnceUntilTakenAndJoinsWhatCameMeanwhile) {
  Engine engine(tiny_options());
  AnswerQueue queue(engine);
  const Ticket ticket = queue.submit(request_of(3, 12));
  EXPECT_EQ(queue.wait(1min), std::vector{ticket});
  while (engine.stats().running + engine.stats().waiting > 0 || engine.stats().finished_requests == 0)
    std::this_thread::sleep_for(1ms);
  EXPECT_TRUE(queue.wait(0s).empty()) << "announced, and not taken";
  const std::vector<Output> pieces = queue.take(ticket);
  ASSERT_EQ(pieces.size(), 1u);
  EXPECT_EQ(pieces[0].tokens.size(), 12u);
  EXPECT_EQ(pieces[0].finish, FinishReason::kLength);
  EXPECT_EQ(pieces[0].usage.completion_tokens, 12);
  EXPECT_EQ(queue.open(), 0u);
  EXPECT_TRUE(queue.take(ticket).empty()) << "forgotten";
}

TEST(AnswerQueue, WaitsForTheEndOfAllChoices) {
  Engine engine(tiny_options());
  AnswerQueue queue(engine);
  const Request request = request_of(4, 9, 3);
  const Ticket ticket = queue.submit(request, AnswerQueue::Announce::kEnd);
  EXPECT_EQ(queue.wait(1min), std::vector{ticket});
  const std::vector<Output> pieces = queue.take(ticket);
  const testing::Answers expected = answers(engine, request);
  ASSERT_EQ(pieces.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    testing::Answer answer;
    answer.add(pieces[i]);
    EXPECT_EQ(pieces[i].choice, static_cast<int>(i));
    expect_same(expected[i], answer);
  }
}

TEST(AnswerQueue, CancelsOneOrAll) {
  Engine engine(tiny_options());
  AnswerQueue queue(engine);
  std::vector<Ticket> tickets;
  for (unsigned seed = 0; seed < 4; ++seed) tickets.push_back(queue.submit(request_of(seed, 100'000'000)));
  queue.cancel(tickets[2]);
  bool ended = false;
  while (!ended) {
    for (const Ticket ticket : queue.wait(1min)) {
      for (const Output& piece : queue.take(ticket)) {
        if (piece.finish == FinishReason::kNone) continue;
        EXPECT_EQ(ticket, tickets[2]);
        EXPECT_EQ(piece.finish, FinishReason::kCancelled);
        ended = true;
      }
    }
  }
  EXPECT_EQ(queue.open(), 3u);
  queue.cancel_all();
  for (const auto& [ticket, choices] : read_all(queue)) EXPECT_EQ(choices[0].last.finish, FinishReason::kCancelled);
}

TEST(AnswerQueue, CancelsWhatIsOpenWhenDestroyed) {
  Engine engine(tiny_options());
  { AnswerQueue(engine).submit(request_of(1, 100'000'000)); }
  while (engine.stats().finished_requests == 0) std::this_thread::sleep_for(1ms);
  EXPECT_EQ(engine.stats().running, 0);
}

TEST(AnswerQueue, ForgetsWhatItsReaderGivesUp) {
  Engine engine(tiny_options());
  AnswerQueue queue(engine);
  const Ticket ticket = queue.submit(request_of(1, 100'000'000));
  EXPECT_EQ(queue.wait(1min), std::vector{ticket});
  queue.forget(ticket);
  EXPECT_EQ(queue.open(), 0u);
  while (engine.stats().finished_requests == 0) std::this_thread::sleep_for(1ms);
  EXPECT_TRUE(queue.wait(0s).empty());
  EXPECT_TRUE(queue.take(ticket).empty());
  queue.forget(ticket);
}

TEST(AnswerQueue, InterruptEndsAllWaits) {
  Engine engine(tiny_options());
  AnswerQueue queue(engine);
  queue.interrupt();
  EXPECT_TRUE(queue.wait(10min).empty()) << "the next one";
  std::atomic<int> ended{0};
  std::vector<std::thread> waiters;
  for (int i = 0; i < 3; ++i) {
    waiters.emplace_back([&] {
      EXPECT_TRUE(queue.wait(10min).empty());
      ++ended;
    });
  }
  while (ended < 3) {  // some may begin to wait after a call
    queue.interrupt();
    std::this_thread::sleep_for(1ms);
  }
  for (std::thread& waiter : waiters) waiter.join();
}

TEST(AnswerQueue, ForgetsARequestThatTheEngineRefuses) {
  Engine engine(tiny_options());
  AnswerQueue queue(engine);
  EXPECT_THROW(queue.submit({.prompt = {}, .sampling = {}}), Error);
  EXPECT_THROW(queue.submit({.prompt = {1}, .sampling = {.n = -5}}), Error);
  EXPECT_THROW(queue.submit({.prompt = {1}, .sampling = {.n = 2'000'000'000}}), Error);
  EXPECT_EQ(queue.open(), 0u);
}

}  // namespace
}  // namespace quire
