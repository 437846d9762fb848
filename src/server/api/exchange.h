// The mailbox of one HTTP request's generation, between the engine's thread, which must never block, and the
// connection, which may have to wait.
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

// Bytes of an OutputToken with this many top_logprobs.
constexpr size_t output_token_bytes(size_t top_logprobs) {
  return sizeof(OutputToken) + top_logprobs * sizeof(std::pair<TokenId, float>);
}

// Bytes that an output owns outside itself.
size_t payload_bytes(const Output& output);

// An output of the engine, with its choice's number in the response.
struct Piece {
  int choice = 0;
  Output output;
};

// Thread-safe. Owned by the connection and by the callbacks that the engine still holds.
class Exchange : public std::enable_shared_from_this<Exchange> {
 public:
  // `wake` is called, from any thread and with the exchange's lock held, when the first output arrives after take()
  // emptied the mailbox. Outputs that wait to be taken may use `max_bytes`, and count in `replies`; beyond either bound
  // the request is cancelled and overflowed() becomes true. `replies` must outlive close().
  Exchange(Completer& completer, std::shared_ptr<ModelMetrics> metrics, std::function<void()> wake, size_t max_bytes,
           ByteBudget& replies);

  // Submits all requests. Their choices are numbered consecutively, and each gives back its place when it ends. If a
  // submit throws, cancels the requests submitted so far and rethrows.
  void start(std::vector<Request> requests, Places places);

  // Appends the outputs that arrived since the last call to `pieces`.
  void take(std::vector<Piece>& pieces);
  bool overflowed() const;

  // The engine stops within a step. Outputs may still arrive.
  void cancel();
  // Cancels unfinished choices, gives back their places, drops further outputs and stops calling `wake`. Call it before
  // destroying the owner.
  void close();

 private:
  void receive(int choice, const Output& output);
  void cancel_submitted();

  Completer& completer_;
  const std::shared_ptr<ModelMetrics> metrics_;
  const size_t max_bytes_;
  ByteBudget& replies_;

  mutable std::mutex mutex_;
  std::function<void()> wake_;
  Places places_;
  std::vector<RequestId> ids_;
  std::vector<Piece> pieces_;
  std::vector<std::chrono::steady_clock::time_point> last_;  // when each choice's last tokens arrived
  size_t bytes_ = 0;                                         // size of pieces_, taken from replies_
  int unfinished_ = 0;                                       // choices
  bool overflowed_ = false, cancelled_ = false;
};

}  // namespace quire
