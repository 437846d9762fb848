// The launches of a step, and the values of the host that they read. They are started in a few parts, so that the device computes
// the first ones while the host still makes the others: each part by a graph of the device if the same launches have been seen
// before.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

#include "cuda/device.h"
#include "cuda/launch.h"

namespace quire::cuda {

class GraphCache;    // cuda/graph_cache.h
class RankGather;    // cuda/ranks/rank_gather.h
class VariantTable;  // cuda/linear/linear_variant.h

class Stream {
 public:
  // Room for the values of a pass, and of all: one may be started while another runs.
  static constexpr size_t kPlaces = size_t{32} << 20;
  static constexpr size_t kPasses = 2, kAllPlaces = kPasses * kPlaces;

  // The device must outlive it. graphs: whether to use them. scratch_bytes: see scratch(). ranks: if the operations are those of one
  // rank among several, how they get what the others compute; it must outlive the stream. variants: chosen kernels of linears, or
  // nullptr; likewise.
  Stream(Device& device, bool graphs, size_t scratch_bytes = 0, RankGather* ranks = nullptr,
         const VariantTable* variants = nullptr);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  const DeviceFacts& facts() const { return device_.facts(); }
  Device& device() { return device_; }

  // Throws Error (kResource): the device has failed. Then, as after an exception from exchange(), the caller discards.
  template <class Kernel>
  void launch(const LaunchShape& shape, const Kernel& kernel) {
    if (shape.x == 0 || shape.y == 0 || shape.z == 0) return;
    launches_.push_back(make_launch(shape, kernel));
    if (launches_.size() == part_) start();
  }

  // Where launches of this pass find these values, at a multiple of 16 bytes. Equal values share their place.
  template <class T>
  const T* place(std::span<const T> values) {
    static_assert(std::is_trivially_copyable_v<T>);
    return reinterpret_cast<const T*>(place_bytes(std::as_bytes(values)));
  }

  // Memory of the device that an operation may use between its launches; the next operation may overwrite it.
  std::byte* scratch() const { return scratch_; }
  size_t scratch_bytes() const { return scratch_bytes_; }

  // Another number for each pass, and after each finish() and discard(): while it is the same, places stay valid.
  uint64_t step() const { return step_; }

  const VariantTable* variants() const { return variants_; }
  RankGather* ranks() const { return ranks_; }  // nullptr: there are no others
  // After the launches so far: to host memory of the device (Device::allocate_host()), where the bytes are after finish().
  void download(std::byte* to, const std::byte* from, size_t bytes);

  // RankGather::exchange(), between the launches before and after. Throws Error (kResource); RankGone: another rank has failed.
  void exchange(size_t bytes);

  // Starts all that has been launched. Throws Error (kResource); then the caller discards.
  void start();
  // ... which ends a pass: another may follow, whose values have places of their own. At most kPasses may be unfinished.
  void end_pass();
  // Waits until the first unfinished pass has run. Throws Error (kResource), and has then given up all launches.
  void finish_first();
  // Waits until all that has been launched has run. Throws Error (kResource), and has then given up the launches.
  void finish();
  // Gives up the launches since the last finish(): those that have not been started never run, and none runs when it returns.
  void discard() noexcept;

 private:
  struct Placed {
    uint64_t hash;
    size_t at, bytes;
  };
  // The host makes a launch in half a microsecond, and a GPU takes some microseconds for one. So while it computes the first part,
  // the host makes a much larger second one. Not many parts: the last launch of one ends before the next part's first begins.
  static constexpr size_t kFirstPart = 32, kGrowth = 8;

  const std::byte* place_bytes(std::span<const std::byte> bytes);
  void begin_pass(size_t pass);
  void forget();

  Device& device_;
  const std::unique_ptr<GraphCache> graphs_;  // nullptr: without graphs
  const size_t scratch_bytes_;
  RankGather* const ranks_;
  const VariantTable* const variants_;
  std::byte* scratch_ = nullptr;
  std::vector<Launch> launches_;  // that have not been started
  size_t part_ = kFirstPart;      // launches after which they are
  std::byte* host_ = nullptr;     // [kPasses][kPlaces] of values
  std::byte* memory_ = nullptr;   // their places on the device
  size_t pass_ = 0;               // the one being made: which of the places it has
  size_t unfinished_ = 0;         // passes that have been ended
  std::array<std::unique_ptr<Device::Mark>, kPasses> ends_;
  size_t used_ = 0, uploaded_ = 0;
  uint64_t step_ = 1;
  std::vector<Placed> placed_;
};

}  // namespace quire::cuda
