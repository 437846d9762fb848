#include "cuda/ranks/host_exchange.h"

namespace quire::cuda {

HostExchange::HostExchange(std::span<Device* const> devices) : barrier_(static_cast<int>(devices.size()), false) {
  for (Device* device : devices) ranks_.push_back({.device = device, .host = {}});
}

void HostExchange::gather(int rank, std::byte* blocks, size_t bytes) {
  Rank& own = ranks_[static_cast<size_t>(rank)];
  own.device->finish();
  own.blocks = blocks;
  own.host.resize(bytes);
  barrier_.wait();  // all blocks are computed
  for (size_t other = 0; other < ranks_.size(); ++other) {
    if (&ranks_[other] == &own) continue;
    const size_t at = other * bytes;
    ranks_[other].device->download(own.host.data(), ranks_[other].blocks + at, bytes);
    own.device->upload(blocks + at, own.host.data(), bytes);
  }
  barrier_.wait();  // nobody reads mine any more
}

}  // namespace quire::cuda
