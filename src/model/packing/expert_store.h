// Experts in memory, as many as there is room for; the others are read from their file when rows choose them.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "model/packing/expert_file.h"
#include "ops/backend.h"
#include "ops/experts.h"

namespace quire {

// Memory is divided into slots, each for the largest expert. Threads of its own read missing experts while those in memory
// are computed. An expert that is read replaces the one that has been chosen least often, of those that are not computed
// now: a choice counts half after kHalfLife times the number of experts calls of begin(). So those that are chosen often stay
// in memory. The files' pages are not locked: what the system's page cache still has is read from there.
//
// Used by one thread at a time. No call allocates.
class ExpertStore final : public ExpertSource {
 public:
  // At least one slot. The backend must outlive it. Throws Error (kResource).
  ExpertStore(ExpertFile file, Backend& backend, size_t slots);
  ~ExpertStore() override;  // waits for the reads under way
  ExpertStore(const ExpertStore&) = delete;
  ExpertStore& operator=(const ExpertStore&) = delete;

  void begin(std::span<const int32_t> experts) override;
  std::span<const Ready> next() override;

  const ExpertFile& file() const { return file_; }
  size_t slots() const { return slots_.size(); }
  size_t memory_bytes() const { return memory_.size(); }
  // Since the last call.
  ExpertReads take_reads();

  static constexpr int kReaders = 4;  // threads
  static constexpr size_t kHalfLife = 4;

 private:
  using Clock = std::chrono::steady_clock;
  struct Slot {
    int32_t expert = -1;
    bool held = false;  // has an expert of this begin() that is being read or computed
  };
  struct Read {
    size_t slot;
    int32_t expert, index;
    std::exception_ptr error = {};
  };

  const std::byte* address(size_t slot) const { return memory_.data() + slot * slot_bytes_; }
  void start_reads();
  size_t least_used_slot() const;
  void take_finished();
  void run_reader();

  const ExpertFile file_;
  Backend& backend_;
  const size_t slot_bytes_;
  BackendMemory memory_;
  std::vector<Slot> slots_;
  std::vector<int32_t> slot_of_;  // [experts]; -1: not in memory
  std::vector<double> uses_;      // [experts]: how often it was chosen, in units that grow
  double use_ = 1;                // what a choice adds now
  const int passing_;             // reads that may replace experts which are chosen more often
  const double growth_;           // of use_ from one begin() to the next

  // Of the begin() under way.
  std::vector<int32_t> wanted_;
  std::vector<int32_t> missing_;  // indices in wanted_
  size_t next_missing_ = 0;
  std::vector<Ready> ready_;  // what next() has returned last, or will return first
  bool begun_ = false;        // next() has not been called
  int under_way_ = 0;         // reads that were started and not taken
  ExpertReads reads_;

  std::mutex mutex_;
  std::condition_variable wake_, finished_;
  // Guarded by the mutex.
  std::vector<Read> queue_;  // from next_read_ on
  size_t next_read_ = 0;
  std::vector<Read> done_;
  int reading_ = 0;  // threads
  Clock::time_point reading_since_;
  double read_seconds_ = 0;
  bool stopping_ = false;

  std::vector<Read> taken_;  // of done_
  std::vector<std::thread> readers_;
};

}  // namespace quire
