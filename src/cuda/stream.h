// The launches of a step, and the values of the host that they read. They run when finish() is called: all at once, by a
// graph of the device if the same launches have been seen before.
#pragma once

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
  // Room for the values of a step.
  static constexpr size_t kPlaces = size_t{32} << 20;

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

  template <class Kernel>
  void launch(const LaunchShape& shape, const Kernel& kernel) {
    if (shape.x == 0 || shape.y == 0 || shape.z == 0) return;
    launches_.push_back(make_launch(shape, kernel));
  }

  // Where launches before the next finish() find these values, at a multiple of 16 bytes. Equal values share their place.
  template <class T>
  const T* place(std::span<const T> values) {
    static_assert(std::is_trivially_copyable_v<T>);
    return reinterpret_cast<const T*>(place_bytes(std::as_bytes(values)));
  }

  // Memory of the device that an operation may use between its launches; the next operation may overwrite it.
  std::byte* scratch() const { return scratch_; }
  size_t scratch_bytes() const { return scratch_bytes_; }

  // Another number after each finish() and discard(): while it is the same, places stay valid.
  uint64_t step() const { return step_; }

  const VariantTable* variants() const { return variants_; }
  RankGather* ranks() const { return ranks_; }  // nullptr: there are no others
  // RankGather::exchange(), between the launches before and after.
  void exchange(size_t bytes);

  // Runs what has been launched and waits for it. Throws Error (kResource): the device has failed; RankGone: another rank has. What
  // has been launched is then forgotten.
  void finish();
  // Forgets what has been launched since the last finish(): it never runs.
  void discard() noexcept;

 private:
  struct Placed {
    uint64_t hash;
    size_t at, bytes;
  };
  struct Exchange {
    size_t launches;  // that come before
    size_t bytes;
  };

  const std::byte* place_bytes(std::span<const std::byte> bytes);
  void run_all();
  void run_launches(std::span<const Launch> launches);

  Device& device_;
  const std::unique_ptr<GraphCache> graphs_;  // nullptr: without graphs
  const size_t scratch_bytes_;
  RankGather* const ranks_;
  const VariantTable* const variants_;
  std::byte* scratch_ = nullptr;
  std::vector<Launch> launches_;
  std::vector<Exchange> exchanges_;
  std::byte* host_ = nullptr;    // [kPlaces] of values
  std::byte* memory_ = nullptr;  // their places on the device
  size_t used_ = 0;
  uint64_t step_ = 1;
  std::vector<Placed> placed_;
};

}  // namespace quire::cuda
