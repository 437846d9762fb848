// Chooses experts for rows, and groups the rows by expert, on the device: what ops/backend.h says of route().
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/kernels/group_routes.h"
#include "cuda/stream.h"
#include "ops/experts.h"
#include "ops/operation_limits.h"

namespace quire::cuda {

// A step's routes, with memory for its largest step: of rows of one layer, until the next call of route().
class RouteMemory {
 public:
  RouteMemory() = default;  // for models without experts
  // memory [bytes(limits)] of the device, which it does not own, zeroed, at a multiple of 16 bytes. Throws Error
  // (kUnsupported): too many experts.
  RouteMemory(std::byte* memory, const OperationLimits& limits);
  static size_t bytes(const OperationLimits& limits);

  // The most gathered rows of so many rows.
  static int most_gathered(int rows, int experts, int used);

  // Of the last route().
  const RoutesAt& routes() const { return routes_; }
  int rows() const { return routes_.used > 0 ? routes_.routes / routes_.used : 0; }

  // As Operations::route().
  void route(Stream& stream, const RouteArgs& args, int rows);

  // Adds the bytes of each expert that has rows now to total(), which begins with 0. A kernel that runs anyway may do so
  // instead: total()[0] += routes().active[0] * bytes.
  void add_bytes(Stream& stream, uint64_t bytes_of_expert) const;
  Global<uint64_t> total() const { return Global<uint64_t>(total_); }
  const uint64_t* total_place() const { return total_; }

 private:
  RoutesAt routes_{};
  uint64_t* total_ = nullptr;
};

// What the host knows of RouteMemory::total(): it comes with each pass, so nobody waits for it while the next pass runs.
class ExpertBytes {
 public:
  // The device, and the memory of the routes, must outlive it. Throws Error (kResource).
  ExpertBytes(Device& device, const RouteMemory& routes);
  ~ExpertBytes();
  ExpertBytes(const ExpertBytes&) = delete;
  ExpertBytes& operator=(const ExpertBytes&) = delete;

  // As the last of a pass, before Stream::end_pass() or finish().
  void download(Stream& stream);
  // After Stream::finish_first(), finish() and discard().
  void finished_first();
  void finished();
  void discarded() { finished_ = passes_; }
  // Of the passes that it has waited for since the last call.
  uint64_t take();

 private:
  static constexpr size_t kPlaces = Stream::kPasses + 1;  // one more may be made when the host waits for all

  Device& device_;
  const std::byte* const total_;
  uint64_t* const places_;            // [kPlaces] for totals
  size_t passes_ = 0, finished_ = 0;  // with a place; of these, that the host has waited for
  uint64_t known_ = 0, taken_ = 0;    // totals
};

}  // namespace quire::cuda
