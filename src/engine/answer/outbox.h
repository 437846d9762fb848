// What clients are to be told: it waits here for a moment in which the engine's thread has nothing to compute.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "engine/request_state.h"
#include "engine/sequence.h"

namespace quire {

// Used by the engine's thread alone. Each client gets its outputs in the order in which they were added. Nothing here allocates but
// the constructor.
class Outbox {
 public:
  using Failed = std::function<void(SequenceId)>;
  // most: outputs that wait; one more, and all are told. failed: called in tell() for a sequence whose client could not be told
  // an output. The client has then got kError as its last one, if it could be told that.
  Outbox(size_t most, Failed failed);

  void add(const Sequence& s, Output&& out);
  // Calls the requests' callbacks.
  void tell();

 private:
  struct Message {
    SequenceId id;
    std::shared_ptr<const RequestState> request;  // null: its client has got its last output already
    Output out;
  };

  void give_up(size_t at, std::string_view error);

  const Failed failed_;
  std::vector<Message> messages_;
};

}  // namespace quire
