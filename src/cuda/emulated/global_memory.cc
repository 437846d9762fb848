#include "cuda/emulated/global_memory.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstdlib>
#include <iterator>

namespace quire::cuda::emulated {
namespace {

constexpr uintptr_t kAllocationAlignment = 256;
constexpr size_t kWord = 4;

// Calls visit(word, bits) for each word of an allocation that has some of these bytes, with a bit for each of them.
template <class Visit>
void for_words(size_t at, size_t bytes, Visit&& visit) {
  const size_t end = at + bytes;
  while (at < end) {
    const size_t first = at % kWord, last = std::min(kWord, first + end - at);
    if (!visit(at / kWord, static_cast<uint8_t>((1u << last) - (1u << first)))) return;
    at += last - first;
  }
}

}  // namespace

GlobalMemory::~GlobalMemory() {
  for (const auto& [address, allocation] : live_) {
    std::free(allocation.memory);
    std::free(allocation.cells);
  }
}

std::byte* GlobalMemory::allocate(size_t bytes) {
  // calloc() maps fresh pages for large blocks, so zeroes cost nothing until they are touched.
  void* memory = std::calloc(bytes + kAllocationAlignment, 1);
  if (!memory) return nullptr;
  const uintptr_t address =
      (reinterpret_cast<uintptr_t>(memory) + kAllocationAlignment - 1) / kAllocationAlignment * kAllocationAlignment;
  // What was freed and is now used again is no longer a mistake to use.
  auto old = freed_.upper_bound(address);
  if (old != freed_.begin()) --old;
  while (old != freed_.end() && old->first < address + bytes) {
    if (old->first + old->second > address) {
      old = freed_.erase(old);
    } else {
      ++old;
    }
  }
  Cell* cells = nullptr;
  if (track_) {
    cells = static_cast<Cell*>(std::calloc(bytes / kWord + 1, sizeof(Cell)));
    if (!cells) {
      std::free(memory);
      return nullptr;
    }
  }
  live_[address] = {bytes, memory, cells};
  return reinterpret_cast<std::byte*>(address);
}

size_t GlobalMemory::free(std::byte* at) {
  const auto found = live_.find(reinterpret_cast<uintptr_t>(at));
  assert(found != live_.end());
  const size_t bytes = found->second.bytes;
  std::free(found->second.memory);
  std::free(found->second.cells);
  freed_[found->first] = bytes;
  live_.erase(found);
  recent_.fill(nullptr);
  return bytes;
}

GlobalMemory::Entry* GlobalMemory::search(uintptr_t address, size_t bytes) {
  auto found = live_.upper_bound(address);
  if (found == live_.begin()) return nullptr;
  --found;
  const size_t offset = address - found->first;
  if (offset > found->second.bytes || bytes > found->second.bytes - offset) return nullptr;
  return recent_[address / kRecentBytes % kRecent] = &*found;
}

std::string GlobalMemory::describe(const void* at) const {
  const auto address = reinterpret_cast<uintptr_t>(at);
  if (address == 0) return "nullptr";
  const auto text = [](size_t offset, const char* where, size_t bytes) {
    return std::to_string(offset) + where + std::to_string(bytes) + " bytes";
  };
  auto freed = freed_.upper_bound(address);
  if (freed != freed_.begin()) {
    --freed;
    if (address - freed->first < freed->second)
      return "byte " + text(address - freed->first, " of a freed allocation of ", freed->second);
  }
  auto after = live_.upper_bound(address);
  if (after != live_.begin()) {
    const auto before = std::prev(after);
    const size_t offset = address - before->first, size = before->second.bytes;
    if (offset < size) return "byte " + text(offset, " of an allocation of ", size);
    if (after == live_.end() || offset - size <= after->first - address)
      return text(offset - size, " bytes after the end of an allocation of ", size);
  }
  if (after != live_.end()) return text(after->first - address, " bytes before an allocation of ", after->second.bytes);
  return "no memory is allocated";
}

std::optional<GlobalConflict> GlobalMemory::use_word(Cell& cell, uint8_t bytes, const GlobalUser& user, GlobalUse use,
                                                     uint32_t finished) {
  const auto block = static_cast<uint32_t>(user.block) + 1;
  if (!user.waited && cell.written_before > finished)
    return GlobalConflict{true, std::nullopt, std::nullopt, GlobalUse::kWrite};
  // Most accesses read what no thread of the launch writes.
  if (use == GlobalUse::kRead && cell.writer == 0 && (cell.read & bytes) == bytes &&
      (cell.reader == block || (cell.reader == kSeveral && (cell.read_by_several & bytes) == bytes)))
    return std::nullopt;
  const auto other = [&](uint32_t who, uint8_t which) {
    return who != 0 && who != block && (which & bytes) && (who != kSeveral || bytes == 0xF);
  };
  const auto conflict = [](uint32_t who, GlobalUse what) {
    const auto which = who == kSeveral ? std::nullopt : std::optional(static_cast<int>(who) - 1);
    return GlobalConflict{false, which, std::nullopt, what};
  };
  if (other(cell.writer, cell.written)) return conflict(cell.writer, GlobalUse::kWrite);
  const int warp = user.thread / 32;
  if (cell.writer == block && (cell.written_last & bytes) && cell.thread != user.thread &&
      cell.when >= user.clocks.past(warp)[cell.thread / 32])
    return GlobalConflict{false, user.block, cell.thread, GlobalUse::kWrite};
  if (use == GlobalUse::kRead) {
    if (cell.reader != 0 && cell.reader != block) {
      cell.reader = kSeveral;
      cell.read_by_several |= cell.read & bytes;
    } else {
      cell.reader = block;
    }
    cell.read |= bytes;
    return std::nullopt;
  }
  if (other(cell.reader, cell.read) || (cell.read_by_several & bytes)) return conflict(cell.reader, GlobalUse::kRead);
  cell.writer = cell.writer == 0 || cell.writer == block ? block : kSeveral;
  cell.written |= bytes;
  cell.written_last = bytes;
  cell.when = user.clocks.now(warp);
  cell.thread = static_cast<uint16_t>(user.thread);
  return std::nullopt;
}

std::optional<GlobalConflict> GlobalMemory::use(const void* at, size_t bytes, const GlobalUser& user, GlobalUse use) {
  if (!track_) return std::nullopt;
  const auto address = reinterpret_cast<uintptr_t>(at);
  Entry* entry = find(address, bytes);
  assert(entry);
  Allocation& allocation = entry->second;
  allocation.last_launch = launch_;
  std::optional<GlobalConflict> found;
  for_words(address - entry->first, bytes, [&](size_t word, uint8_t bits) {
    Cell& cell = allocation.cells[word];
    if (cell.launch != launch_) {
      const uint32_t written_before = cell.writer != 0 ? cell.launch : cell.written_before;
      cell = {};
      cell.launch = launch_;
      cell.written_before = written_before;
    }
    if (use == GlobalUse::kRead) {
      first_read_ += static_cast<uint64_t>(std::popcount(static_cast<uint8_t>(bits & ~(cell.read | cell.written))));
    } else {
      first_written_ += static_cast<uint64_t>(std::popcount(static_cast<uint8_t>(bits & ~cell.written)));
    }
    found = use_word(cell, bits, user, use, finished_);
    return !found;
  });
  return found;
}

bool GlobalMemory::in_use(const void* at, size_t bytes, GlobalUse use) {
  const auto address = reinterpret_cast<uintptr_t>(at);
  Entry* entry = track_ ? find(address, bytes) : nullptr;
  if (!entry || entry->second.last_launch <= finished_) return false;
  bool found = false;
  for_words(address - entry->first, bytes, [&](size_t word, uint8_t bits) {
    const Cell& cell = entry->second.cells[word];
    if (cell.launch > finished_)
      found = cell.written_before > finished_ || (cell.writer && (cell.written & bits)) ||
              (use == GlobalUse::kWrite && cell.reader && (cell.read & bits));
    return !found;
  });
  return found;
}

}  // namespace quire::cuda::emulated
