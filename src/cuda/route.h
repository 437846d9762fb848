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

  // Adds the bytes of each expert that has rows now to those that take_bytes() returns. A kernel that
  // runs anyway may do so instead: total()[0] += routes().active[0] * bytes.
  void add_bytes(Stream& stream, uint64_t bytes_of_expert) const;
  Global<uint64_t> total() const { return Global<uint64_t>(total_); }
  // Finishes.
  uint64_t take_bytes(Stream& stream) const;

 private:
  RoutesAt routes_{};
  uint64_t* total_ = nullptr;
};

}  // namespace quire::cuda
