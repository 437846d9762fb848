// Publishes which pages the prefix cache has, in vLLM's format over ZeroMQ, for routers that send requests to where their
// prefix is (docs/replicas.md).
#pragma once

#include <memory>

#include "quire/page_observer.h"
#include "server/kv_events/kv_event_counts.h"
#include "server/kv_events/kv_event_options.h"

namespace quire {

// A PUB socket sends the events of a step, or of several if it fell behind, as one message: topic, sequence number (8 bytes,
// big-endian), batch (event_batch.h). A ROUTER socket answers requests for past batches: ["", first sequence number] gets a
// ["", sequence number, batch] for each that is still kept, and ends with ["", -1, ""].
//
// The engine's thread only appends to a list; a thread of the publisher encodes and sends. A subscriber that reads too slowly
// misses messages, which it sees from the sequence numbers. If the publisher itself falls too far behind, or memory is short,
// what waits is dropped and AllBlocksCleared sent in its place: subscribers then know less than there is, never more.
class KvEventPublisher final : public PageObserver {
 public:
  // Throws Error if an endpoint cannot be used.
  explicit KvEventPublisher(const KvEventOptions& options);
  ~KvEventPublisher() override;  // sends what has been told
  KvEventPublisher(const KvEventPublisher&) = delete;
  KvEventPublisher& operator=(const KvEventPublisher&) = delete;

  void stored(const CachedPage& page) noexcept override;
  void removed(uint64_t hash) noexcept override;
  void step_ended() noexcept override;
  void cleared() noexcept override;

  std::shared_ptr<const KvEventCounts> counts() const;

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace quire
