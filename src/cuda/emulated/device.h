// A device on the host's processor, which runs kernels slowly and finds their mistakes: for tests. cuda::open(0) makes one with all
// checks; with a higher number one that only checks bounds and alignment, for whole models.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "cuda/device.h"
#include "cuda/emulated/block.h"
#include "cuda/emulated/counters.h"
#include "cuda/emulated/fault.h"
#include "cuda/emulated/global_memory.h"

namespace quire::cuda {

struct EmulatedOptions {
  size_t memory = size_t{1} << 30;
  // What launches depend on (DeviceFacts). Kernels run the same on all.
  int major = 9, minor = 0, processors = 4;
  int shared_bytes = emulated::kMostSharedBytes;  // of a block; no more than this
  emulated::BlockChecks checks;
};

// Failures to come, for tests.
struct EmulatedFailures {
  // The launch after so many more fails, and the device is lost, as a GPU after an illegal access.
  std::optional<int64_t> launch;
  // The allocation after so many more finds no memory; later ones do.
  std::optional<int64_t> allocation;
};

// Kernels run at once, in run(). It throws DeviceFault if a kernel makes a mistake. So do download(), upload() and copy() of memory
// which kernels use that finish() has not waited for (with checks of races): a GPU may still run them. And so does finish() if the
// host has changed what an upload_in_order() might not have read yet.
class EmulatedDevice final : public Device {
 public:
  explicit EmulatedDevice(const EmulatedOptions& options = {});
  // Appends the counters to the file that the environment's QUIRE_KERNEL_COUNTS names (counts_file.h).
  ~EmulatedDevice() override;

  // By the names of kernels.
  std::map<std::string, KernelCounters, std::less<>> counters() const;
  // By their types: a template has many of one name.
  std::map<const KernelEntry*, KernelCounters> counters_by_entry() const;
  void reset_counters();
  void inject(const EmulatedFailures& failures);
  // From now on all functions but those that free throw Error (kResource).
  void lose();

  const DeviceFacts& facts() const override { return facts_; }
  size_t free_memory() const override;

  std::byte* allocate(size_t bytes) override;
  void free(std::byte* memory) override;
  std::byte* allocate_host(size_t bytes) override;
  void free_host(std::byte* memory) override;
  bool pin(std::byte* memory, size_t bytes) override;
  void unpin(std::byte* memory) override;  // throws DeviceFault: it is not pinned
  void upload(std::byte* to, const std::byte* from, size_t bytes) override;
  void download(std::byte* to, const std::byte* from, size_t bytes) override;
  void copy(std::byte* to, const std::byte* from, size_t bytes) override;
  BoxMap map_boxes(const std::byte* data, int rows, int columns, size_t stride, int box_rows) override;

  void upload_in_order(std::byte* to, const std::byte* from, size_t bytes) override;
  void run(std::span<const Launch> launches) override;
  void download_in_order(std::byte* to, const std::byte* from, size_t bytes) override;
  void finish() override;
  std::unique_ptr<Mark> make_mark() override;
  void mark(Mark& mark) override;
  void wait(Mark& mark) override;
  std::unique_ptr<Graph> record(std::span<const Launch> launches) override;
  void run(Graph& graph) override;

 private:
  void check_alive() const;
  void check_range(const std::byte* memory, size_t bytes, const char* what);
  void check_idle(const std::byte* memory, size_t bytes, emulated::GlobalUse use, const char* what);
  void run_one(const Launch& launch);
  void finish(size_t transfers, uint32_t launches);

  DeviceFacts facts_;
  mutable std::mutex mutex_;  // of all that follows
  size_t used_ = 0;
  bool lost_ = false;
  EmulatedFailures failures_;
  std::map<const KernelEntry*, KernelCounters> counters_;
  std::set<const std::byte*> pinned_;
  struct Transfer {
    bool up;
    std::byte* host;
    std::vector<std::byte> bytes;
  };
  std::deque<Transfer> transfers_;  // in order, that nothing has waited for
  size_t waited_transfers_ = 0;     // before these
  emulated::GlobalMemory memory_;
  emulated::BlockRunner blocks_;
};

}  // namespace quire::cuda
