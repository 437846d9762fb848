#include "ops/local_ranks.h"

#include <algorithm>
#include <cassert>
#include <chrono>
#include <cstring>

#include "base/cpu.h"

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

bool RankBarrier::arrive(uint32_t& round) {
  // The round first: if another gives up after that, the round ends; before, it is seen to have gone.
  round = rounds_.load(std::memory_order_acquire);
  check();
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 < ranks_) return false;
  arrived_.store(0, std::memory_order_relaxed);
  rounds_.fetch_add(1, std::memory_order_release);
  rounds_.notify_all();
  return true;
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
  using Clock = std::chrono::steady_clock;

 public:
  Rank(int rank, int ranks, LocalRanks& all, Team& team)
      : Communicator(rank, ranks), all_(all), team_(team), helped_with_(static_cast<size_t>(ranks)) {}

  void gather(std::span<const SharedColumns> parts, int rows) override {
    assert(parts.size() <= kMostParts);
    parts_ = parts;
    wait();  // until all parts are computed
    const auto began = Clock::now();
    copy_from_others(rows);
    count(Clock::now() - began);
    wait();  // until nobody reads mine any more
    lent_ = false;
    ++counts_.gathers;
  }
  bool share_memory() const override { return true; }
  const void* borrow(const void* mine) override {
    lends_ = mine;
    wait();
    return all_.ranks_[0]->lends_;
  }
  void publish() override {
    wait();
    lent_ = true;
  }
  void take_back() override {
    if (lent_) wait();
    lent_ = false;
  }
  // After a failed step, when nobody reads any more.
  void forget_lent() { lent_ = false; }

 private:
  // Returns when all ranks have called it. Helps those that come later.
  void wait() {
    const auto began = Clock::now();
    helped_ = {};
    all_.barrier_.wait([this] { return help(); });
    count(Clock::now() - began - helped_);
  }
  void count(Clock::duration time) {
    counts_.nanoseconds += static_cast<uint64_t>(std::chrono::nanoseconds(time).count());
  }

  // Runs tiles of a loop that another rank has begun since, with all threads of this rank. Whether there was one.
  bool help() {
    for (size_t other = 0; other < helped_with_.size(); ++other) {
      Team& team = all_.ranks_[other]->team_;
      const uint32_t loop = team.loop();
      if (&team == &team_ || loop == 0 || loop == helped_with_[other]) continue;
      helped_with_[other] = loop;
      const auto began = Clock::now();
      team_.for_tiles(team_.size(), [&](int, int) { team.help(loop); });
      helped_ += Clock::now() - began;
      return true;
    }
    return false;
  }

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
  Clock::duration helped_{};              // in the wait that runs
  std::vector<uint32_t> helped_with_;     // by rank: the last loop
  const void* lends_ = nullptr;           // in borrow()
  bool lent_ = false;                     // the others may still be reading what was published
};

LocalRanks::LocalRanks(std::span<Team* const> teams)
    : barrier_(static_cast<int>(teams.size()), threads_of(teams) <= usable_cores()) {
  const auto ranks = static_cast<int>(teams.size());
  for (int rank = 0; rank < ranks; ++rank)
    ranks_.push_back(std::make_unique<Rank>(rank, ranks, *this, *teams[static_cast<size_t>(rank)]));
}
LocalRanks::~LocalRanks() = default;

void LocalRanks::reset() {
  barrier_.reset();
  for (const auto& rank : ranks_) rank->forget_lent();
}

Communicator& LocalRanks::of(int rank) const { return *ranks_[static_cast<size_t>(rank)]; }

}  // namespace quire
