#include "ops/local_ranks.h"

#include <algorithm>
#include <cassert>
#include <chrono>
#include <cstring>

#include "base/cpu.h"
#include "base/spin.h"

namespace quire {
namespace {

// Fewer bytes are copied by one thread: waking others takes longer.
constexpr size_t kLeastCopiedTogether = size_t{1} << 16;
constexpr int kRowsCopiedTogether = 16;

int threads_of(std::span<Team* const> teams) {
  int threads = 0;
  for (const Team* team : teams) threads += team->size();
  return threads;
}

}  // namespace

void RankBarrier::wait() {
  // The round first: if another gives up after that, the round ends; before, it is seen to have gone.
  const uint32_t round = rounds_.load(std::memory_order_acquire);
  if (gone_.load(std::memory_order_acquire)) throw RankGone();
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == ranks_) {
    arrived_.store(0, std::memory_order_relaxed);
    rounds_.fetch_add(1, std::memory_order_release);
    rounds_.notify_all();
  } else {
    const auto ended = [&] { return rounds_.load(std::memory_order_acquire) != round; };
    while (!ended()) {
      if (!spins_ || !spin_until(ended)) rounds_.wait(round, std::memory_order_acquire);
    }
  }
  if (gone_.load(std::memory_order_acquire)) throw RankGone();
}

void RankBarrier::give_up() {
  gone_.store(true, std::memory_order_release);
  rounds_.fetch_add(1, std::memory_order_release);
  rounds_.notify_all();
}

void RankBarrier::reset() {
  gone_.store(false, std::memory_order_relaxed);
  arrived_.store(0, std::memory_order_release);
}

class LocalRanks::Rank final : public Communicator {
 public:
  Rank(int rank, int ranks, LocalRanks& all, Team& team) : Communicator(rank, ranks), all_(all), team_(team) {}

  void gather(std::span<const SharedColumns> parts, int rows) override {
    assert(parts.size() <= kMostParts);
    const auto began = std::chrono::steady_clock::now();
    parts_ = parts;
    all_.barrier_.wait();  // all parts are computed
    copy_from_others(rows);
    all_.barrier_.wait();  // nobody reads mine any more
    ++counts_.gathers;
    const auto took = std::chrono::steady_clock::now() - began;
    counts_.nanoseconds += static_cast<uint64_t>(std::chrono::nanoseconds(took).count());
  }

 private:
  void copy_from_others(int rows) {
    size_t bytes = 0;
    for (const SharedColumns& part : parts_) {
      const int own = part.columns_of(share(part.units)).size();
      bytes += static_cast<size_t>(part.y.cols - own) * static_cast<size_t>(rows) * sizeof(float);
    }
    counts_.bytes += bytes;
    if (bytes < kLeastCopiedTogether) return copy_rows(0, rows);
    team_.for_tiles((rows + kRowsCopiedTogether - 1) / kRowsCopiedTogether, [&](int tile, int) {
      copy_rows(tile * kRowsCopiedTogether, std::min(rows, (tile + 1) * kRowsCopiedTogether));
    });
  }

  void copy_rows(int begin, int end) const {
    for (int rank = 0; rank < ranks(); ++rank) {
      if (rank == this->rank()) continue;
      const std::span<const SharedColumns> theirs = all_.ranks_[static_cast<size_t>(rank)]->parts_;
      assert(theirs.size() == parts_.size());
      for (size_t i = 0; i < parts_.size(); ++i) {
        const Share columns = parts_[i].columns_of(share_of(parts_[i].units, rank, ranks()));
        if (columns.size() == 0) continue;
        const Rows to = parts_[i].y.columns(columns.begin, columns.size()),
                   from = theirs[i].y.columns(columns.begin, columns.size());
        for (int row = begin; row < end; ++row)
          std::memcpy(to.row(row), from.row(row), static_cast<size_t>(columns.size()) * sizeof(float));
      }
    }
  }

  LocalRanks& all_;
  Team& team_;
  std::span<const SharedColumns> parts_;  // of the gather that runs
};

LocalRanks::LocalRanks(std::span<Team* const> teams)
    : barrier_(static_cast<int>(teams.size()), threads_of(teams) <= usable_cores()) {
  const auto ranks = static_cast<int>(teams.size());
  for (int rank = 0; rank < ranks; ++rank)
    ranks_.push_back(std::make_unique<Rank>(rank, ranks, *this, *teams[static_cast<size_t>(rank)]));
}
LocalRanks::~LocalRanks() = default;

Communicator& LocalRanks::of(int rank) const { return *ranks_[static_cast<size_t>(rank)]; }

}  // namespace quire
