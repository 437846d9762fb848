// An exchange between devices of this process, through memory of the host.
#pragma once

#include <span>
#include <vector>

#include "cuda/device.h"
#include "cuda/ranks/exchange.h"
#include "ops/local_ranks.h"

namespace quire::cuda {

class HostExchange final : public Exchange {
 public:
  // devices: by rank; they must outlive it.
  explicit HostExchange(std::span<Device* const> devices);

  void gather(int rank, std::byte* blocks, size_t bytes) override;
  void give_up() override { barrier_.give_up(); }
  void reset() override { barrier_.reset(); }

 private:
  struct Rank {
    Device* device;
    const std::byte* blocks = nullptr;  // of the gather that runs
    std::vector<std::byte> host;
  };

  std::vector<Rank> ranks_;
  RankBarrier barrier_;
};

}  // namespace quire::cuda
