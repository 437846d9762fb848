// The memory of the emulated device: its allocations, and which blocks of a launch have read or written them.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "cuda/emulated/clocks.h"

namespace quire::cuda::emulated {

enum class GlobalUse : uint8_t { kRead, kWrite };

// A thread of a launch, and what is ordered before its accesses.
struct GlobalUser {
  int block, thread;
  bool waited;                // for earlier launches
  const BlockClocks& clocks;  // of its block
};

// A race with another thread that has used the same bytes, where at least one of the two writes. The other thread is
//
//   of another block of the launch, since blocks run in any order;
//   of the same block, with no barrier in between (only races with earlier writes are found);
//   or of an earlier launch that nothing has waited for.
struct GlobalConflict {
  bool earlier_launch;        // then nothing of the following
  std::optional<int> block;   // which one, unless it is several
  std::optional<int> thread;  // if it is of the same block
  GlobalUse use;              // what it did
};

// Functions may be called from one thread at a time.
class GlobalMemory {
 public:
  // track: whether use() is called.
  explicit GlobalMemory(bool track) : track_(track) {}
  ~GlobalMemory();
  GlobalMemory(const GlobalMemory&) = delete;
  GlobalMemory& operator=(const GlobalMemory&) = delete;

  // Zeroed, at a multiple of 256. nullptr: the host has no more.
  std::byte* allocate(size_t bytes);
  // Returns the bytes that it had; at is of allocate().
  size_t free(std::byte* at);

  // Whether these bytes lie in one allocation.
  bool contains(const void* at, size_t bytes) { return find(reinterpret_cast<uintptr_t>(at), bytes) != nullptr; }
  // For messages: which allocation is the closest, such as "16 bytes after the end of an allocation of 1024 bytes".
  std::string describe(const void* at) const;

  // ---- Uses of a launch. Without `track` nothing is found.

  void start_launch() {
    ++launch_;
    first_read_ = first_written_ = 0;
  }
  // Notes that a thread uses these bytes, which contains() has found. A byte of a word
  // whose other bytes are used by other blocks may conflict unseen: words are the unit.
  std::optional<GlobalConflict> use(const void* at, size_t bytes, const GlobalUser& user, GlobalUse use);
  // Bytes that the launch has read, or written, and had not used before.
  uint64_t first_read() const { return first_read_; }
  uint64_t first_written() const { return first_written_; }
  // How many launches there have been.
  uint32_t launches() const { return launch_; }
  // The host has waited for the first so many.
  void finish_launches(uint32_t launches) { finished_ = std::max(finished_, launches); }
  // Whether a launch that the host has not waited for uses these bytes in a way that does not go with `use` by the host.
  bool in_use(const void* at, size_t bytes, GlobalUse use);

 private:
  // Uses of a word, as of `launch`. 0: none; kSeveral; else 1 + the block.
  struct Cell {
    uint32_t launch, writer, reader;
    uint32_t when;                           // the last write
    uint16_t thread;                         // that did it
    uint8_t written, read, read_by_several;  // a bit for each byte
    uint8_t written_last;                    // by the last write
    uint32_t written_before;                 // the last earlier launch that wrote it
  };
  static constexpr uint32_t kSeveral = 0xFFFFFFFF;
  struct Allocation {
    size_t bytes;
    void* memory;              // of calloc()
    Cell* cells;               // one a word
    uint32_t last_launch = 0;  // that used it
  };
  using Entry = std::map<uintptr_t, Allocation>::value_type;

  Entry* find(uintptr_t address, size_t bytes) {
    Entry* entry = recent_[address / kRecentBytes % kRecent];
    if (entry && address - entry->first <= entry->second.bytes &&
        bytes <= entry->second.bytes - (address - entry->first))
      return entry;
    return search(address, bytes);
  }
  Entry* search(uintptr_t address, size_t bytes);
  static std::optional<GlobalConflict> use_word(Cell& cell, uint8_t bytes, const GlobalUser& user, GlobalUse use,
                                                uint32_t finished);

  // Allocations found for addresses with the same remainder.
  static constexpr size_t kRecent = 64, kRecentBytes = 4096;

  const bool track_;
  std::map<uintptr_t, Allocation> live_;
  std::map<uintptr_t, size_t> freed_;  // the address and bytes of allocations that were freed and not reused
  std::array<Entry*, kRecent> recent_{};
  uint32_t launch_ = 0, finished_ = 0;
  uint64_t first_read_ = 0, first_written_ = 0;
};

}  // namespace quire::cuda::emulated
