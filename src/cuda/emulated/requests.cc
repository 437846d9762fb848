#include "cuda/emulated/requests.h"

#include <algorithm>

namespace quire::cuda::emulated {
namespace {

constexpr uint64_t kSector = 32, kBankBytes = 4, kBanks = 32;

// The passes over the banks that these accesses need together.
int passes_of(std::span<const LaneAccess> lanes) {
  std::array<std::array<uint64_t, 32>, kBanks> words;  // that are wanted of each bank
  std::array<size_t, kBanks> count{};
  size_t most = 0;
  for (const LaneAccess& lane : lanes) {
    if (lane.bytes == 0) continue;
    for (uint64_t word = lane.at / kBankBytes; word <= (lane.at + lane.bytes - 1) / kBankBytes; ++word) {
      const size_t bank = word % kBanks;
      const auto known = std::span(words[bank]).first(count[bank]);
      if (std::ranges::find(known, word) != known.end() || count[bank] == words[bank].size()) continue;
      words[bank][count[bank]++] = word;
      most = std::max(most, count[bank]);
    }
  }
  return static_cast<int>(most);
}

}  // namespace

int sectors_of(std::span<const LaneAccess> lanes) {
  std::array<uint64_t, 128> known;
  size_t count = 0;
  for (const LaneAccess& lane : lanes) {
    if (lane.bytes == 0) continue;
    for (uint64_t sector = lane.at / kSector; sector <= (lane.at + lane.bytes - 1) / kSector; ++sector) {
      // Most often it is the last one again.
      bool found = false;
      for (size_t i = count; i > 0 && !found; --i) found = known[i - 1] == sector;
      if (!found && count < known.size()) known[count++] = sector;
    }
  }
  return static_cast<int>(count);
}

int bank_conflicts_of(std::span<const LaneAccess> lanes) {
  uint32_t widest = kBankBytes;
  for (const LaneAccess& lane : lanes) widest = std::max(widest, lane.bytes);
  const size_t parts = std::clamp<size_t>(widest / kBankBytes, 1, 4), size = (lanes.size() + parts - 1) / parts;
  int conflicts = 0;
  for (size_t first = 0; first < lanes.size(); first += size) {
    const int passes = passes_of(lanes.subspan(first, std::min(size, lanes.size() - first)));
    conflicts += std::max(passes - 1, 0);
  }
  return conflicts;
}

void RequestLog::flush(KernelCounters& counters) {
  for (size_t kind = 0; kind < accesses_.size(); ++kind) {
    Lanes& lanes = accesses_[kind];
    size_t requests = 0;
    for (const auto& lane : lanes) requests = std::max(requests, lane.size());
    for (size_t i = 0; i < requests; ++i) {
      std::array<LaneAccess, 32> request;
      for (size_t lane = 0; lane < request.size(); ++lane) {
        if (i >= lanes[lane].size()) continue;
        const uint64_t packed = lanes[lane][i];
        request[lane] = {packed >> kBytesBits, static_cast<uint32_t>(packed & ((1u << kBytesBits) - 1))};
      }
      if (kind <= static_cast<size_t>(Kind::kGlobalWrite)) {
        ++counters.global_requests;
        counters.global_sectors += static_cast<uint64_t>(sectors_of(request));
      } else {
        ++counters.shared_requests;
        counters.bank_conflicts += static_cast<uint64_t>(bank_conflicts_of(request));
      }
    }
  }
  clear();
}

void RequestLog::clear() {
  for (Lanes& lanes : accesses_) {
    for (auto& lane : lanes) lane.clear();
  }
}

}  // namespace quire::cuda::emulated
