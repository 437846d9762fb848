#include "cuda/stream.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <utility>

#include "base/files/checksum.h"
#include "cuda/graph_cache.h"
#include "cuda/ranks/rank_gather.h"
#include "quire/error.h"

namespace quire::cuda {
namespace {

// Sizes are rounded up to these, so that what follows keeps its place while a page table grows: then a graph can be used again.
constexpr size_t kLeastPlace = 256, kLargePlace = size_t{64} << 10;

}  // namespace

Stream::Stream(Device& device, bool graphs, size_t scratch_bytes, RankGather* ranks, const VariantTable* variants)
    : device_(device),
      graphs_(graphs ? std::make_unique<GraphCache>(device) : nullptr),
      scratch_bytes_(scratch_bytes),
      ranks_(ranks),
      variants_(variants) {
  if (scratch_bytes > 0) scratch_ = device_.allocate(scratch_bytes);
  host_ = device_.allocate_host(kPlaces);
  memory_ = device_.allocate(kPlaces);
}

Stream::~Stream() {
  try {
    device_.finish();
  } catch (const Error&) {  // a lost device: nothing runs on it
  }
  device_.free(memory_);
  if (scratch_) device_.free(scratch_);
  device_.free_host(host_);
}

const std::byte* Stream::place_bytes(std::span<const std::byte> bytes) {
  if (bytes.empty()) return memory_;
  const uint64_t hash = checksum(bytes);
  for (const Placed& place : placed_) {
    if (place.hash == hash && place.bytes == bytes.size() &&
        std::memcmp(host_ + place.at, bytes.data(), bytes.size()) == 0)
      return memory_ + place.at;
  }
  const size_t whole = bytes.size() <= kLargePlace ? std::max(kLeastPlace, std::bit_ceil(bytes.size()))
                                                   : (bytes.size() + kLargePlace - 1) / kLargePlace * kLargePlace;
  if (whole > kPlaces - used_)
    throw Error(ErrorKind::kResource, "the operations of a step have more than " + std::to_string(kPlaces >> 20) +
                                          " MiB of arguments; lower --max-num-batched-tokens");
  const size_t at = std::exchange(used_, used_ + whole);
  std::memcpy(host_ + at, bytes.data(), bytes.size());
  placed_.push_back({hash, at, bytes.size()});
  return memory_ + at;
}

void Stream::exchange(size_t bytes) { exchanges_.push_back({launches_.size(), bytes}); }

void Stream::discard() noexcept {
  launches_.clear();
  exchanges_.clear();
  used_ = 0;
  ++step_;
  placed_.clear();
}

void Stream::run_launches(std::span<const Launch> launches) {
  if (launches.empty()) return;
  if (graphs_) {
    graphs_->run(launches);
  } else {
    device_.run(launches);
  }
}

void Stream::run_all() {
  if (used_ > 0) device_.upload_in_order(memory_, host_, used_);
  const std::span<const Launch> all = launches_;
  size_t begin = 0;
  for (const Exchange& exchange : exchanges_) {
    run_launches(all.subspan(begin, exchange.launches - begin));
    ranks_->exchange(exchange.bytes);
    begin = exchange.launches;
  }
  run_launches(all.subspan(begin));
  device_.finish();
}

void Stream::finish() {
  if (!launches_.empty() || !exchanges_.empty()) {
    try {
      run_all();
    } catch (...) {
      try {
        device_.finish();       // what has been started still uses `host_`
      } catch (const Error&) {  // a lost device: nothing runs on it
      }
      discard();
      throw;
    }
  }
  discard();
}

}  // namespace quire::cuda
