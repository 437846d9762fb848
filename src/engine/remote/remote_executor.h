// An executor in another process, or on the other side of any channel.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/remote/channel.h"
#include "engine/remote/messages.h"
#include "engine/step/executor.h"

namespace quire {

struct Patience {
  std::chrono::milliseconds reply{2000};  // until a request is sent again; a long pass may take longer
  int most_tries = 300;
};

// Requests are numbered, and the next one waits for the reply to the last. A channel may delay, repeat or drop messages:
// replies to earlier requests are passed over, and a request whose reply does not come is sent again; the server then
// repeats its reply instead of the work (serve_executor()). So each request is carried out once, and a channel that loses
// messages changes no result.
class RemoteExecutor final : public Executor {
 public:
  explicit RemoteExecutor(std::unique_ptr<MessageChannel> channel, const Patience& patience = {});

  void launch(const ForwardInput& input) override;
  const ForwardOutput& wait() override;
  bool computes_apart() const override { return true; }
  void commit(const CacheChanges& changes) override;
  void read(const CachePlace& place, std::span<std::byte> to) override;
  void write(const CachePlace& place, std::span<const std::byte> bytes) override;

 private:
  void send(Json request, const char* what, std::span<const std::byte> bytes = {});
  // The reply to the last request; its bytes are valid until the next one. Throws std::bad_alloc or Error as the executor
  // did, and Error (kResource) if no reply comes.
  Message reply();

  std::unique_ptr<MessageChannel> channel_;
  const Patience patience_;
  uint64_t number_ = 0;             // number of the last request
  std::vector<std::byte> request_;  // encoded
  std::vector<std::byte> reply_;
  ForwardOutput output_;
  std::vector<float> logits_;
};

}  // namespace quire
