#include "cuda/emulated/arrivals.h"

#include <cstring>
#include <string>
#include <utility>

#include "cuda/emulated/block.h"

namespace quire::cuda::emulated {

void Arrivals::init(size_t offset, int count) {
  if (count < 1) runner_.fault("init_arrivals() for " + std::to_string(count) + " arrivals; it takes 1 or more");
  if (barriers_.contains(offset)) runner_.fault("init_arrivals() of a barrier a second time");
  Barrier barrier{.count = count, .missing = count, .bytes = 0};
  runner_.shadow().clocks.release(runner_.thread().warp(), barrier.made);
  barriers_.emplace(offset, std::move(barrier));
}

Arrivals::Barrier& Arrivals::find(size_t offset) {
  const auto found = barriers_.find(offset);
  if (found == barriers_.end())
    runner_.fault("a barrier of arrivals at byte " + std::to_string(offset % kMostSharedBytes) +
                  " of shared memory, for which nobody has called init_arrivals()");
  const size_t warp = static_cast<size_t>(runner_.thread().warp());
  const auto& past = runner_.shadow().clocks.past(runner_.thread().warp());
  for (size_t v = 0; runner_.checks().races && v < past.size(); ++v) {
    if (v != warp && past[v] < found->second.made[v])
      runner_.fault("it uses a barrier of arrivals, and no barrier lies between that and init_arrivals()");
  }
  return found->second;
}

void Arrivals::arrive(size_t offset, int bytes) {
  Barrier& barrier = find(offset);
  if (barrier.missing == 0)
    runner_.fault("an arrival beyond the " + std::to_string(barrier.count) + " that the barrier counts in a phase");
  runner_.shadow().clocks.release(runner_.thread().warp(), barrier.arriving);
  --barrier.missing;
  barrier.bytes += bytes;
  end_phase_if_complete(barrier);
}

void Arrivals::wait(size_t offset, int parity, const Site& site) {
  Barrier& barrier = find(offset);
  const uint32_t other = parity == 0 ? 1 : 0;
  while (barrier.phase % 2 != other) {
    barrier.waiting.push_back(runner_.thread().index);
    runner_.sleep("wait_arrivals()", site);
  }
  runner_.shadow().clocks.acquire(runner_.thread().warp(), barrier.ended);
}

void Arrivals::start_copy(size_t offset, size_t to, std::vector<std::byte> bytes) {
  Barrier& barrier = find(offset);
  // Who sees the phase end sees the bytes.
  runner_.shadow().clocks.release(runner_.thread().warp(), barrier.arriving);
  barrier.bytes -= static_cast<int64_t>(bytes.size());
  barrier.copies.push_back({to, std::move(bytes)});
  end_phase_if_complete(barrier);
}

void Arrivals::end_phase_if_complete(Barrier& barrier) {
  if (barrier.missing > 0 || barrier.bytes != 0) return;
  std::byte* const memory = runner_.shared_of(0).data();
  for (const Copy& copy : barrier.copies) {
    std::memcpy(memory + copy.to, copy.bytes.data(), copy.bytes.size());
    if (runner_.checks().races) runner_.shadow().finish_box(copy.to, copy.bytes.size());
  }
  barrier.copies.clear();
  barrier.missing = barrier.count;
  ++barrier.phase;
  BlockClocks::join(barrier.ended, std::exchange(barrier.arriving, {}));
  for (const int i : std::exchange(barrier.waiting, {})) runner_.wake(i);
}

}  // namespace quire::cuda::emulated
