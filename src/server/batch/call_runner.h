// Answers requests that come without a connection, such as the lines of batches: many at a time, on the caller's thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "server/api/admission.h"
#include "server/api/exchange.h"
#include "server/api/models.h"

namespace quire {

struct CallResult {
  uint64_t number = 0;     // as given to start()
  int status = 200;        // HTTP's
  std::string request_id;  // in traces
  std::string body;        // one line of JSON: the answer, or an error in the shape of its endpoint
};

struct CallLimits {
  size_t work_bytes = size_t{64} << 20;    // memory for reading one request, beyond itself, and for writing its answer
  size_t answer_bytes = size_t{64} << 20;  // what the engine has said of all calls and is not written yet
  // Runs a function that reads a request or writes an answer, on any thread, and returns once it has ended; rethrows.
  std::function<void(const std::function<void()>&)> worker = [](const std::function<void()>& work) { work(); };
  // Whether a model that is not loaded may be loaded now. Otherwise its calls wait, and ask again.
  std::function<bool()> may_load = [] { return true; };
};

// For one thread, except wake(). A call whose model is not loaded waits for it; one that finds the queue full waits for a
// place.
class CallRunner {
 public:
  using Clock = std::chrono::steady_clock;

  // models must outlive it.
  CallRunner(const Models& models, CallLimits limits);
  ~CallRunner();  // as cancel() of all calls
  CallRunner(const CallRunner&) = delete;
  CallRunner& operator=(const CallRunner&) = delete;

  // number: of no other call. What is wrong with the request is its result.
  void start(uint64_t number, const ApiDefinition& api, std::string body, const Tenant& tenant);

  // Appends the calls that have ended. If none has, waits for one until `deadline`, or until wake() was called.
  void collect(std::vector<CallResult>& ended, Clock::time_point deadline);
  void wake();  // from any thread

  size_t calls() const { return calls_.size() + results_.size(); }  // started and not collected
  int answers() const { return answers_; }                          // choices that hold a place
  size_t bytes() const { return bytes_; }                           // that requests take in memory

  // Ends a call without a result.
  void cancel(uint64_t number);

 private:
  struct Call;
  struct Mailbox;
  using Calls = std::unordered_map<uint64_t, std::unique_ptr<Call>>;

  void prepare(Call& call);
  void begin(Call& call);
  void advance(Call& call);
  void finish(Call& call, int status, std::string body);
  void fail(Call& call, const ApiError& error);

  const Models& models_;
  const CallLimits limits_;
  ByteBudget outputs_;
  const std::shared_ptr<Mailbox> mailbox_;
  Calls calls_;
  std::deque<uint64_t> waiting_;     // calls that found no place, or may not load their model yet
  std::vector<CallResult> results_;  // not yet collected
  std::vector<Piece> pieces_;        // scratch of advance()
  int answers_ = 0;
  size_t bytes_ = 0;
};

}  // namespace quire
