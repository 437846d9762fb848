#include "cuda/emulated/device.h"

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "cuda/emulated/counts_file.h"

namespace quire::cuda {
namespace {

struct EmulatedMark final : Device::Mark {
  size_t transfers = 0;   // before it
  uint32_t launches = 0;  // likewise
};

struct EmulatedGraph final : Device::Graph {
  std::vector<Launch> launches;
};

constexpr std::align_val_t kHostAlignment{256};
constexpr int kEmulatedDevices = 64;  // as many as ranks

// Counts down to a failure.
bool comes_due(std::optional<int64_t>& failure) {
  if (!failure || (*failure)-- > 0) return false;
  failure.reset();
  return true;
}

}  // namespace

EmulatedDevice::EmulatedDevice(const EmulatedOptions& options)
    : memory_(options.checks.races), blocks_(memory_, options.checks) {
  facts_ = {.name = "emulated",
            .major = options.major,
            .minor = options.minor,
            .processors = options.processors,
            .shared_bytes = options.shared_bytes,
            .memory = options.memory,
            .clusters = options.major == 9,
            .emulated = true};
}

EmulatedDevice::~EmulatedDevice() {
  const char* file = std::getenv("QUIRE_KERNEL_COUNTS");
  if (file && *file) append_counts(file, "all", facts_, counters_);
}

std::map<std::string, KernelCounters, std::less<>> EmulatedDevice::counters() const {
  std::map<std::string, KernelCounters, std::less<>> by_name;
  for (const auto& [entry, counters] : counters_by_entry()) by_name[entry->name] += counters;
  return by_name;
}

std::map<const KernelEntry*, KernelCounters> EmulatedDevice::counters_by_entry() const {
  const std::lock_guard lock(mutex_);
  return counters_;
}

void EmulatedDevice::reset_counters() {
  const std::lock_guard lock(mutex_);
  counters_.clear();
}

void EmulatedDevice::inject(const EmulatedFailures& failures) {
  const std::lock_guard lock(mutex_);
  failures_ = failures;
}

void EmulatedDevice::lose() {
  const std::lock_guard lock(mutex_);
  lost_ = true;
}

void EmulatedDevice::check_alive() const {
  if (lost_) throw no_resource("the emulated device has failed; restart the program");
}

size_t EmulatedDevice::free_memory() const {
  const std::lock_guard lock(mutex_);
  check_alive();
  return facts_.memory - used_;
}

std::byte* EmulatedDevice::allocate(size_t bytes) {
  const std::lock_guard lock(mutex_);
  check_alive();
  const bool fails = comes_due(failures_.allocation);
  std::byte* memory = !fails && bytes <= facts_.memory - used_ ? memory_.allocate(bytes) : nullptr;
  if (!memory)
    throw no_resource("the emulated device cannot allocate {} bytes; {} of {} are free", bytes, facts_.memory - used_,
                      facts_.memory);
  used_ += bytes;
  return memory;
}

void EmulatedDevice::free(std::byte* memory) {
  if (!memory) return;
  const std::lock_guard lock(mutex_);
  if (!memory_.contains(memory, 0))
    throw DeviceFault("free() of memory that is not allocated: " + memory_.describe(memory));
  used_ -= memory_.free(memory);
}

std::byte* EmulatedDevice::allocate_host(size_t bytes) {
  const std::lock_guard lock(mutex_);
  check_alive();
  return static_cast<std::byte*>(::operator new(bytes, kHostAlignment));
}
bool EmulatedDevice::pin(std::byte* memory, size_t) {
  const std::lock_guard lock(mutex_);
  return pinned_.insert(memory).second;
}

void EmulatedDevice::unpin(std::byte* memory) {
  const std::lock_guard lock(mutex_);
  if (pinned_.erase(memory) == 0) throw DeviceFault("unpin() of memory that is not pinned");
}

void EmulatedDevice::free_host(std::byte* memory) { ::operator delete(memory, kHostAlignment); }

void EmulatedDevice::check_range(const std::byte* memory, size_t bytes, const char* what) {
  if (bytes > 0 && !memory_.contains(memory, bytes))
    throw DeviceFault(std::string(what) + " of " + std::to_string(bytes) +
                      " bytes of the device out of bounds: " + memory_.describe(memory));
}

void EmulatedDevice::check_idle(const std::byte* memory, size_t bytes, emulated::GlobalUse use, const char* what) {
  check_range(memory, bytes, what);
  if (bytes > 0 && memory_.in_use(memory, bytes, use))
    throw DeviceFault(std::string(what) + " of " + std::to_string(bytes) +
                      " bytes of the device that kernels still use: call finish() first. They begin at " +
                      memory_.describe(memory));
}

void EmulatedDevice::upload(std::byte* to, const std::byte* from, size_t bytes) {
  const std::lock_guard lock(mutex_);
  check_alive();
  check_idle(to, bytes, emulated::GlobalUse::kWrite, "an upload");
  if (bytes > 0) std::memcpy(to, from, bytes);
}

void EmulatedDevice::download(std::byte* to, const std::byte* from, size_t bytes) {
  const std::lock_guard lock(mutex_);
  check_alive();
  check_idle(from, bytes, emulated::GlobalUse::kRead, "a download");
  if (bytes > 0) std::memcpy(to, from, bytes);
}

void EmulatedDevice::copy(std::byte* to, const std::byte* from, size_t bytes) {
  const std::lock_guard lock(mutex_);
  check_alive();
  check_idle(to, bytes, emulated::GlobalUse::kWrite, "a copy");
  check_idle(from, bytes, emulated::GlobalUse::kRead, "a copy");
  if (bytes > 0) std::memmove(to, from, bytes);
}

BoxMap EmulatedDevice::map_boxes(const std::byte* data, int rows, int columns, size_t stride, int box_rows) {
  constexpr size_t kAlignment = 16;
  const bool aligned = reinterpret_cast<uintptr_t>(data) % kAlignment == 0 && stride % kAlignment == 0;
  if (!aligned || rows < 1 || columns < 1 || box_rows < 1 || box_rows > 256)
    throw DeviceFault("map_boxes() of " + std::to_string(rows) + " rows of " + std::to_string(columns) + " numbers, " +
                      std::to_string(stride) + " bytes apart, by boxes of " + std::to_string(box_rows) + " rows");
  return {.data = data, .stride = stride, .rows = rows, .columns = columns, .box_rows = box_rows};
}

void EmulatedDevice::upload_in_order(std::byte* to, const std::byte* from, size_t bytes) {
  const std::lock_guard lock(mutex_);
  check_alive();
  check_range(to, bytes, "an upload");
  if (bytes > 0) std::memcpy(to, from, bytes);
  transfers_.push_back({true, const_cast<std::byte*>(from), {from, from + bytes}});
}

void EmulatedDevice::run_one(const Launch& launch) {
  check_alive();
  if (comes_due(failures_.launch)) {
    lost_ = true;
    throw no_resource("the emulated device has failed in kernel {}", launch.entry->name);
  }
  blocks_.run(launch, counters_[launch.entry]);
}

void EmulatedDevice::run(std::span<const Launch> launches) {
  const std::lock_guard lock(mutex_);
  check_alive();
  for (const Launch& launch : launches) run_one(launch);
}

// Not before finish(): a GPU may take so long.
void EmulatedDevice::download_in_order(std::byte* to, const std::byte* from, size_t bytes) {
  const std::lock_guard lock(mutex_);
  check_alive();
  check_range(from, bytes, "a download");
  transfers_.push_back({false, to, {from, from + bytes}});
}

void EmulatedDevice::finish() {
  const std::lock_guard lock(mutex_);
  finish(waited_transfers_ + transfers_.size(), memory_.launches());
}

// transfers, launches: how many there were before the place that is waited for.
void EmulatedDevice::finish(size_t transfers, uint32_t launches) {
  std::vector<Transfer> done;
  for (; waited_transfers_ < transfers; ++waited_transfers_) {
    done.push_back(std::move(transfers_.front()));
    transfers_.pop_front();
  }
  check_alive();
  memory_.finish_launches(launches);
  for (const Transfer& t : done) {
    if (!t.up) {
      std::ranges::copy(t.bytes, t.host);
    } else if (!std::equal(t.bytes.begin(), t.bytes.end(), t.host)) {
      throw DeviceFault("the host has changed " + std::to_string(t.bytes.size()) +
                        " bytes before they were uploaded: wait for the upload first");
    }
  }
}

std::unique_ptr<Device::Mark> EmulatedDevice::make_mark() { return std::make_unique<EmulatedMark>(); }

void EmulatedDevice::mark(Mark& mark) {
  const std::lock_guard lock(mutex_);
  check_alive();
  auto& place = static_cast<EmulatedMark&>(mark);
  place.transfers = waited_transfers_ + transfers_.size();
  place.launches = memory_.launches();
}

void EmulatedDevice::wait(Mark& mark) {
  const std::lock_guard lock(mutex_);
  const auto& place = static_cast<const EmulatedMark&>(mark);
  finish(place.transfers, place.launches);
}

std::unique_ptr<Device::Graph> EmulatedDevice::record(std::span<const Launch> launches) {
  auto graph = std::make_unique<EmulatedGraph>();
  graph->launches.assign(launches.begin(), launches.end());
  return graph;
}

void EmulatedDevice::run(Graph& graph) { run(static_cast<EmulatedGraph&>(graph).launches); }

std::unique_ptr<Device> open(int index) {
  if (index == 0) return std::make_unique<EmulatedDevice>();
  if (index > 0 && index < kEmulatedDevices)
    return std::make_unique<EmulatedDevice>(EmulatedOptions{.checks = {.races = false, .requests = false}});
  throw invalid("there is no emulated device {}; there are 0, with all checks, and 1 to {}, with few", index,
                kEmulatedDevices - 1);
}

}  // namespace quire::cuda
