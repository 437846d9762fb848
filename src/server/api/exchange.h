// One HTTP request's generation under way: between the engine's thread, which must never wait, and the connection,
// which may have to.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "server/api/admission.h"
#include "server/api/completer.h"
#include "server/api/metrics.h"

namespace quire {

// What an OutputToken with so many top_logprobs holds.
constexpr size_t output_token_bytes(size_t top_logprobs) {
  return sizeof(OutputToken) + top_logprobs * sizeof(std::pair<TokenId, float>);
}

// What an output holds beside itself.
size_t payload_bytes(const Output& output);

// An engine's output, with the number its choice has in the response.
struct Piece {
  int choice = 0;
  Output output;
};

// Thread-safe. Held by the connection and by the callbacks that the engine still has; whoever is last frees it.
class Exchange : public std::enable_shared_from_this<Exchange> {
 public:
  // `wake` is called, from any thread and with the exchange's lock held, when there is something to take and the last
  // take found nothing left. Outputs that nobody takes may hold `max_bytes`, and are held in `replies`; past either the
  // request is cancelled and overflowed(). `replies` must outlive the close.
  Exchange(Completer& completer, std::shared_ptr<Metrics> metrics, std::function<void()> wake, size_t max_bytes,
           ByteBudget& replies);

  // Submits all; each has sampling.n choices, numbered on, and a place that it gives back when it ends. Throws what
  // submit throws, having cancelled what it had submitted.
  void start(std::vector<Request> requests, Places places);

  // Moves what has come since the last call behind `pieces`.
  void take(std::vector<Piece>& pieces);
  bool overflowed() const;

  // The engine stops working on it within a step. Outputs may still come.
  void cancel();
  // No wake from now on; what comes is dropped. Cancels what has not ended. To be called before the owner goes.
  void close();

 private:
  void receive(int choice, const Output& output);
  void cancel_submitted();

  Completer& completer_;
  const std::shared_ptr<Metrics> metrics_;
  const size_t max_bytes_;
  ByteBudget& replies_;

  mutable std::mutex mutex_;
  std::function<void()> wake_;
  Places places_;
  std::vector<RequestId> ids_;
  std::vector<Piece> pieces_;
  std::vector<std::chrono::steady_clock::time_point> last_;  // of each choice: when its last tokens came
  size_t bytes_ = 0;                                         // of pieces_, taken from replies_
  int unfinished_ = 0;                                       // choices
  bool overflowed_ = false, cancelled_ = false;
};

}  // namespace quire
