// Answers that a reader takes at its own pace, for hosts whose threads must not be called by the engine.
//
//   quire::AnswerQueue answers(engine);
//   answers.submit(request);
//   while (answers.open() > 0) {
//     for (const auto ticket : answers.wait(std::chrono::milliseconds(100))) {
//       for (const quire::Output& piece : answers.take(ticket)) std::cout << piece.text;
//     }
//   }
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "quire/engine.h"

namespace quire {

// The answers of any number of requests to one engine. The engine's thread never waits for the reader: a piece that comes
// before the last one was taken is appended to it. So each choice holds at most one piece, and memory is bounded by the
// length of the answers, however slow the reader is. Thread-safe.
class AnswerQueue {
 public:
  // Names a request of this queue; never 0, never used again.
  enum class Ticket : uint64_t {};
  // When wait() returns a request.
  enum class Announce : uint8_t {
    kPieces,  // when it has a piece, or more than one
    kEnd,     // when all its choices have ended; take() then returns each answer in one piece
  };

  explicit AnswerQueue(Engine& engine);  // must outlive the queue
  // Cancels what has not ended. No other thread may use the queue meanwhile.
  ~AnswerQueue();
  AnswerQueue(const AnswerQueue&) = delete;
  AnswerQueue& operator=(const AnswerQueue&) = delete;

  // Throws Error as Engine::submit does.
  Ticket submit(Request request, Announce announce = Announce::kPieces);
  // Waits until there is something to take, the time is over, or interrupt() was called. Returns each request once for all
  // that it has at this time; it comes again for what it has after take(). With several readers, one of them gets it.
  std::vector<Ticket> wait(std::chrono::nanoseconds timeout);
  // What has come since the last call: at most one piece for each choice, in the order of choices. Once the last pieces of
  // all choices are taken, the request is forgotten. Nothing for tickets that are unknown.
  std::vector<Output> take(Ticket ticket);
  // The request ends with kCancelled soon, which take() returns. No effect if it has ended.
  void cancel(Ticket ticket);
  void cancel_all();
  // Cancels the request and drops what has not been taken, now and later.
  void forget(Ticket ticket);
  // Lets all calls of wait() return, and the next one if there are none.
  void interrupt();
  size_t open() const;  // requests that are not forgotten

 private:
  struct State;
  Engine& engine_;
  std::shared_ptr<State> state_;  // callbacks may outlive the queue
};

}  // namespace quire
