#include "cuda/stream.h"

#include <algorithm>
#include <bit>
#include <cassert>
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
  host_ = device_.allocate_host(kAllPlaces);
  memory_ = device_.allocate(kAllPlaces);
  for (std::unique_ptr<Device::Mark>& end : ends_) end = device_.make_mark();
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
  std::byte* const host = host_ + pass_ * kPlaces;
  std::byte* const memory = memory_ + pass_ * kPlaces;
  if (bytes.empty()) return memory;
  const uint64_t hash = checksum(bytes);
  for (const Placed& place : placed_) {
    if (place.hash == hash && place.bytes == bytes.size() &&
        std::memcmp(host + place.at, bytes.data(), bytes.size()) == 0)
      return memory + place.at;
  }
  const size_t whole = bytes.size() <= kLargePlace ? std::max(kLeastPlace, std::bit_ceil(bytes.size()))
                                                   : (bytes.size() + kLargePlace - 1) / kLargePlace * kLargePlace;
  if (whole > kPlaces - used_)
    throw Error(ErrorKind::kResource, "the operations of a step have more than " + std::to_string(kPlaces >> 20) +
                                          " MiB of arguments; lower --max-num-batched-tokens");
  const size_t at = std::exchange(used_, used_ + whole);
  std::memcpy(host + at, bytes.data(), bytes.size());
  placed_.push_back({hash, at, bytes.size()});
  return memory + at;
}

void Stream::start() {
  if (launches_.empty()) return;
  const size_t at = pass_ * kPlaces + uploaded_;
  if (used_ > uploaded_) device_.upload_in_order(memory_ + at, host_ + at, used_ - uploaded_);
  uploaded_ = used_;
  if (graphs_) {
    graphs_->run(launches_);
  } else {
    device_.run(launches_);
  }
  launches_.clear();
  part_ = std::min(kGrowth * part_, GraphCache::kMostLaunches);
}

void Stream::download(std::byte* to, const std::byte* from, size_t bytes) {
  start();
  device_.download_in_order(to, from, bytes);
}

void Stream::exchange(size_t bytes) {
  start();
  ranks_->exchange(bytes);
}

void Stream::begin_pass(size_t pass) {
  launches_.clear();
  part_ = kFirstPart;
  used_ = uploaded_ = 0;
  ++step_;
  placed_.clear();
  pass_ = pass;
}

void Stream::forget() {
  begin_pass(0);
  unfinished_ = 0;
}

void Stream::end_pass() {
  assert(unfinished_ < kPasses);
  start();
  device_.mark(*ends_[pass_]);
  ++unfinished_;
  begin_pass((pass_ + 1) % kPasses);
}

void Stream::finish_first() {
  if (unfinished_ == 0) return;
  try {
    device_.wait(*ends_[(pass_ + kPasses - unfinished_) % kPasses]);
  } catch (...) {
    discard();
    throw;
  }
  if (--unfinished_ == 0) forget();
}

void Stream::finish() {
  try {
    start();
    device_.finish();
  } catch (...) {
    discard();
    throw;
  }
  forget();
}

void Stream::discard() noexcept {
  try {
    device_.finish();       // the device may still be reading `host_`
  } catch (const Error&) {  // a lost device: nothing runs on it
  }
  forget();
}

}  // namespace quire::cuda
