#include "cuda/stream.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <utility>

#include "cuda/ranks/rank_gather.h"
#include "quire/error.h"

namespace quire::cuda {
namespace {

// Sizes are rounded up to these, so that what follows keeps its place while a page table grows: then a graph can be used again.
constexpr size_t kLeastPlace = 256, kLargePlace = size_t{64} << 10;
constexpr size_t kMostLaunches = 1 << 14;  // of all graphs: fifty of a whole model, or hundreds of single layers

uint64_t hash_of(uint64_t hash, const void* data, size_t bytes) {
  constexpr uint64_t kPrime = 0x9E3779B97F4A7C15;
  const auto* p = static_cast<const std::byte*>(data);
  for (; bytes >= 8; bytes -= 8, p += 8) {
    uint64_t word;
    std::memcpy(&word, p, 8);
    hash = (hash ^ word) * kPrime;
    hash ^= hash >> 29;
  }
  uint64_t rest = bytes;
  for (; bytes > 0; --bytes, ++p) rest = rest << 8 | static_cast<uint64_t>(*p);
  hash = (hash ^ rest) * kPrime;
  return hash ^ hash >> 31;
}

uint64_t hash_of(std::span<const Launch> launches) {
  uint64_t hash = launches.size();
  for (const Launch& launch : launches) {
    hash = hash_of(hash, &launch.shape, sizeof launch.shape);
    hash = hash_of(hash ^ reinterpret_cast<uintptr_t>(launch.entry), launch.kernel.data(), launch.entry->bytes);
  }
  return hash;
}

}  // namespace

Stream::Stream(Device& device, bool graphs, size_t scratch_bytes, RankGather* ranks)
    : device_(device), graphs_(graphs), scratch_bytes_(scratch_bytes), ranks_(ranks) {
  if (scratch_bytes > 0) scratch_ = device_.allocate(scratch_bytes);
  host_ = device_.allocate_host(kPlaces);
  memory_ = device_.allocate(kPlaces);
}

Stream::~Stream() {
  try {
    device_.finish();
  } catch (const Error&) {  // a lost device: nothing runs on it
  }
  recorded_.clear();
  device_.free(memory_);
  if (scratch_) device_.free(scratch_);
  device_.free_host(host_);
}

const std::byte* Stream::place_bytes(std::span<const std::byte> bytes) {
  if (bytes.empty()) return memory_;
  begin();
  const uint64_t hash = hash_of(0, bytes.data(), bytes.size());
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

// A step that another rank could not finish is forgotten when the next one begins.
void Stream::begin() {
  if (!ranks_ || rounds_ == ranks_->rounds()) return;
  forget();
  rounds_ = ranks_->rounds();
}

void Stream::exchange(size_t bytes) {
  begin();
  exchanges_.push_back({launches_.size(), bytes});
}

void Stream::forget() {
  launches_.clear();
  exchanges_.clear();
  used_ = 0;
  ++step_;
  placed_.clear();
}

void Stream::run_launches(std::span<const Launch> launches) {
  if (launches.empty()) return;
  if (!graphs_ || launches.size() > kMostLaunches) {
    device_.run(launches);
    return;
  }
  const uint64_t hash = hash_of(launches);
  const auto found = std::ranges::find_if(
      recorded_, [&](const Recorded& r) { return r.hash == hash && std::ranges::equal(r.launches, launches); });
  if (found == recorded_.end()) {
    size_t kept = launches.size();
    const auto end =
        std::ranges::find_if(recorded_, [&](const Recorded& r) { return (kept += r.launches.size()) > kMostLaunches; });
    recorded_.erase(end, recorded_.end());
    device_.run(launches);
    recorded_.push_front({hash, {launches.begin(), launches.end()}, nullptr});
    return;
  }
  recorded_.splice(recorded_.begin(), recorded_, found);
  Recorded& recorded = recorded_.front();
  if (!recorded.graph) recorded.graph = device_.record(launches);
  if (recorded.graph) {
    device_.run(*recorded.graph);
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
  begin();
  if (!launches_.empty() || !exchanges_.empty()) {
    try {
      run_all();
    } catch (...) {
      try {
        device_.finish();       // what has been started still uses `host_`
      } catch (const Error&) {  // a lost device: nothing runs on it
      }
      forget();
      throw;
    }
  }
  forget();
}

}  // namespace quire::cuda
