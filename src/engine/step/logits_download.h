// From a device's logits to what the host samples from.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "engine/step/forward.h"
#include "ops/backend.h"

namespace quire {

class LogitsDownload {
 public:
  // The backend must outlive it.
  explicit LogitsDownload(Backend& backend) : backend_(backend) {}

  // Calls the operations that pick and bring the results. x: rows of logits in the backend's memory, dense, whose operations may still run. wanted:
  // ForwardInput::picks.
  void begin(Operations& ops, const Rows& x, std::span<const std::optional<Pick>> wanted);
  // When these operations have been done, with the same arguments: sets `logits`, `picked` and `logits_bytes` of the output. rows:
  // of logits. A row comes whole if its pick does not decide; or has NaN or infinities, or nothing at all: so the sampler sees all that is
  // wrong with it.
  // gone: x has been overwritten, so no row comes whole.
  void end(const Rows& x, size_t rows, std::span<const std::optional<Pick>> wanted, bool gone, ForwardOutput& output);

 private:
  void read_picked(std::span<const std::optional<Pick>> wanted, ForwardOutput& output);
  void read_rows(const Rows& x, ForwardOutput& output);

  Backend& backend_;
  std::vector<Pick> picks_;
  std::span<const std::byte> results_;
  HostCopy host_picked_, host_logits_;
};

}  // namespace quire
