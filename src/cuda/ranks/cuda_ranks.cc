#include "cuda/ranks/cuda_ranks.h"

#include <utility>
#include <vector>

#include "cuda/cuda_operations.h"
#include "cuda/ranks/host_exchange.h"
#include "cuda/ranks/nccl_exchange.h"
#include "ops/forwarding.h"

namespace quire::cuda {
namespace {

// The device of a rank, whose operations compute its share.
class RankBackend final : public ForwardingBackend {
 public:
  RankBackend(CudaBackend& device, Exchange& exchange, RankNumber number)
      : ForwardingBackend(device), device_(device), link_{&exchange, number, &received_} {}

  std::unique_ptr<Operations> operations(Activations activations, const OperationLimits& limits) override {
    return device_.operations(activations, limits, link_);
  }
  const GatherCounts& received() const { return received_; }

 private:
  CudaBackend& device_;
  GatherCounts received_;
  const RankLink link_;
};

class CudaRanks final : public DeviceRanks {
 public:
  CudaRanks(std::span<CudaBackend* const> backends, std::unique_ptr<Exchange> exchange)
      : exchange_(std::move(exchange)) {
    const auto ranks = static_cast<int>(backends.size());
    for (int rank = 0; rank < ranks; ++rank)
      ranks_.push_back(
          std::make_unique<RankBackend>(*backends[static_cast<size_t>(rank)], *exchange_, RankNumber{rank, ranks}));
  }

  int size() const override { return static_cast<int>(ranks_.size()); }
  Backend& backend(int rank) override { return *ranks_[static_cast<size_t>(rank)]; }
  const GatherCounts& received(int rank) const override { return ranks_[static_cast<size_t>(rank)]->received(); }
  void give_up() override { exchange_->give_up(); }
  void reset() override { exchange_->reset(); }

 private:
  const std::unique_ptr<Exchange> exchange_;
  std::vector<std::unique_ptr<RankBackend>> ranks_;
};

}  // namespace

std::unique_ptr<DeviceRanks> connect_ranks(std::span<CudaBackend* const> backends) {
  std::vector<Device*> devices;
  for (CudaBackend* backend : backends) devices.push_back(&backend->device());
  std::unique_ptr<Exchange> exchange;
  if (devices[0]->stream())
    exchange = std::make_unique<NcclExchange>(devices);
  else
    exchange = std::make_unique<HostExchange>(devices);
  return std::make_unique<CudaRanks>(backends, std::move(exchange));
}

}  // namespace quire::cuda
