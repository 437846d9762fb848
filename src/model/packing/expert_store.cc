#include "model/packing/expert_store.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <utility>

#include "base/signals.h"

namespace quire {
namespace {

size_t largest_expert(const ExpertFile& file) {
  size_t most = 0;
  for (size_t i = 0; i < file.experts(); ++i) most = std::max(most, file.bytes_of(i));
  return ExpertFile::aligned(most);
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

ExpertStore::ExpertStore(ExpertFile file, Backend& backend, size_t slots)
    : file_(std::move(file)),
      backend_(backend),
      slot_bytes_(largest_expert(file_)),
      memory_(backend, slots * slot_bytes_),
      slots_(slots),
      slot_of_(file_.experts(), -1),
      uses_(file_.experts(), 0),
      passing_(static_cast<int>(std::clamp<size_t>(slots / 4, 1, kReaders))),
      growth_(std::exp2(1 / static_cast<double>(kHalfLife * file_.experts()))) {
  assert(slots > 0);
  for (std::vector<int32_t>* const list : {&wanted_, &missing_}) list->reserve(file_.experts());
  ready_.reserve(file_.experts());
  queue_.reserve(file_.experts());
  for (std::vector<Read>* const list : {&done_, &taken_}) list->reserve(slots);
  const BlockSignals leave_signals_to_the_program;
  for (int i = 0; i < kReaders; ++i) readers_.emplace_back([this] { run_reader(); });
}

ExpertStore::~ExpertStore() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  for (std::thread& reader : readers_) reader.join();
}

void ExpertStore::begin(std::span<const int32_t> experts) {
  assert(under_way_ == 0 && experts.size() <= file_.experts());
  wanted_.assign(experts.begin(), experts.end());
  missing_.clear();
  next_missing_ = 0;
  ready_.clear();
  begun_ = true;
  use_ *= growth_;
  constexpr double kMost = 1e200;
  if (use_ > kMost) {
    for (double& uses : uses_) uses /= kMost;
    use_ /= kMost;
  }
  for (size_t i = 0; i < wanted_.size(); ++i) {
    const auto expert = static_cast<size_t>(wanted_[i]);
    uses_[expert] += use_;
    if (slot_of_[expert] < 0) {
      missing_.push_back(static_cast<int32_t>(i));
      continue;
    }
    const auto slot = static_cast<size_t>(slot_of_[expert]);
    assert(!slots_[slot].held);
    slots_[slot].held = true;
    ready_.push_back({static_cast<int32_t>(i), address(slot)});
  }
  reads_.hits += ready_.size();
  start_reads();
}

std::span<const ExpertSource::Ready> ExpertStore::next() {
  if (std::exchange(begun_, false) && !ready_.empty()) return ready_;
  for (const Ready& one : ready_) {
    const auto expert = static_cast<size_t>(wanted_[static_cast<size_t>(one.index)]);
    slots_[static_cast<size_t>(slot_of_[expert])].held = false;
  }
  ready_.clear();
  start_reads();
  if (under_way_ == 0) {
    assert(next_missing_ == missing_.size());  // no slot is held
    return {};
  }
  take_finished();
  return ready_;
}

// Starts reads of missing experts as long as there are slots for them. A prompt may choose all experts of a layer: they pass
// through a few slots, and do not replace those that are chosen more often.
void ExpertStore::start_reads() {
  const int before = under_way_;
  {
    const std::lock_guard lock(mutex_);
    for (; next_missing_ < missing_.size(); ++next_missing_) {
      const size_t slot = least_used_slot();
      if (slot == slots_.size()) break;
      const int32_t index = missing_[next_missing_], expert = wanted_[static_cast<size_t>(index)];
      if (const int32_t old = slots_[slot].expert; old >= 0) {
        const bool is_better = uses_[static_cast<size_t>(old)] > uses_[static_cast<size_t>(expert)];
        if (is_better && under_way_ >= passing_) break;
        slot_of_[static_cast<size_t>(old)] = -1;
      }
      slots_[slot] = {expert, true};
      queue_.push_back({slot, expert, index});
      ++under_way_;
    }
  }
  for (int i = before; i < std::min(under_way_, before + kReaders); ++i) wake_.notify_one();
}

// slots(): all are held.
size_t ExpertStore::least_used_slot() const {
  size_t best = slots_.size();
  double least = 0;
  for (size_t i = 0; i < slots_.size(); ++i) {
    const Slot& slot = slots_[i];
    if (slot.held) continue;
    if (slot.expert < 0) return i;
    const double uses = uses_[static_cast<size_t>(slot.expert)];
    if (best == slots_.size() || uses < least) {
      best = i;
      least = uses;
    }
  }
  return best;
}

// Waits for reads, and makes the experts ready. Throws the first error, once no read is under way.
void ExpertStore::take_finished() {
  std::exception_ptr error;
  const auto start = Clock::now();
  do {
    {
      std::unique_lock lock(mutex_);
      finished_.wait(lock, [&] { return !done_.empty(); });
      std::swap(done_, taken_);
    }
    for (Read& read : taken_) {
      --under_way_;
      Slot& slot = slots_[read.slot];
      if (read.error) {
        slot = {};
        if (!error) error = read.error;
        continue;
      }
      slot_of_[static_cast<size_t>(read.expert)] = static_cast<int32_t>(read.slot);
      ++reads_.reads;
      reads_.bytes += file_.bytes_of(static_cast<size_t>(read.expert));
      if (!error) ready_.push_back({read.index, address(read.slot)});
    }
    taken_.clear();
  } while (error && under_way_ > 0);
  reads_.wait_seconds += seconds_since(start);
  if (!error) return;
  for (Slot& slot : slots_) slot.held = false;
  ready_.clear();
  std::rethrow_exception(error);
}

ExpertReads ExpertStore::take_reads() {
  {
    const std::lock_guard lock(mutex_);
    reads_.read_seconds = std::exchange(read_seconds_, 0);
  }
  return std::exchange(reads_, {});
}

void ExpertStore::run_reader() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [&] { return stopping_ || next_read_ < queue_.size(); });
    if (stopping_) return;
    Read read = queue_[next_read_++];
    if (next_read_ == queue_.size()) {
      queue_.clear();
      next_read_ = 0;
    }
    if (reading_++ == 0) reading_since_ = Clock::now();
    lock.unlock();
    const auto expert = static_cast<size_t>(read.expert);
    backend_.write(memory_.data() + read.slot * slot_bytes_, file_.bytes_of(expert), [&](std::span<std::byte> to) {
      try {
        file_.read(expert, to);
      } catch (...) {
        read.error = std::current_exception();
      }
    });
    lock.lock();
    if (--reading_ == 0) read_seconds_ += seconds_since(reading_since_);
    done_.push_back(std::move(read));
    finished_.notify_one();
  }
}

}  // namespace quire
