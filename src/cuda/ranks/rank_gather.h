// How the operations of a rank get what the others compute.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "cuda/device.h"
#include "cuda/ranks/exchange.h"
#include "ops/communicator.h"
#include "ops/ranks/shares.h"

namespace quire::cuda {

class Stream;

// A rank's place among others.
struct RankLink {
  Exchange* exchange = nullptr;  // nullptr: there are no others
  RankNumber number;
  GatherCounts* received = nullptr;  // counts what it gets
};

// Owns memory for one block of each rank. Columns are packed to the own block, exchanged, and brought to their places; with more
// than fit, in several rounds. All shares of a part have the room of the largest.
class RankGather {
 public:
  // Of all ranks' blocks. A row of the widest output of a model has a megabyte.
  static constexpr size_t kBytes = size_t{32} << 20;
  // The device must outlive it, and what the link names. Throws Error (kResource).
  RankGather(Device& device, const RankLink& link, size_t bytes = kBytes);
  ~RankGather();
  RankGather(const RankGather&) = delete;
  RankGather& operator=(const RankGather&) = delete;

  RankNumber number() const { return link_.number; }

  // As Communicator::gather(), after what the stream has been given so far.
  void gather(Stream& stream, std::span<const SharedColumns> parts, int rows);

  // For the stream, when it comes to an exchange of blocks of so many bytes.
  void exchange(size_t bytes);

 private:
  void gather_rows(Stream& stream, std::span<const SharedColumns> parts, size_t row_floats, int first, int rows);

  Device& device_;
  const RankLink link_;
  const size_t bytes_;
  std::byte* const memory_;  // [ranks][bytes of the exchange]
};

}  // namespace quire::cuda
