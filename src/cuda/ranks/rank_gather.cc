#include "cuda/ranks/rank_gather.h"

#include <algorithm>
#include <chrono>
#include <string>

#include "cuda/kernels/ranks/gathered_columns.h"
#include "cuda/row_arguments.h"
#include "cuda/rows.h"
#include "cuda/stream.h"
#include "quire/error.h"

namespace quire::cuda {
namespace {

// Floats of the largest share of a row, rounded up to 16 bytes.
size_t share_floats(const SharedColumns& part, int ranks) {
  const int units = (part.units + ranks - 1) / ranks, cols = std::min(units * part.width, part.y.cols);
  return static_cast<size_t>((cols + 3) / 4 * 4);
}

}  // namespace

RankGather::RankGather(Device& device, const RankLink& link, size_t bytes)
    : device_(device), link_(link), bytes_(bytes), memory_(device.allocate(bytes)) {}

RankGather::~RankGather() { device_.free(memory_); }

void RankGather::gather(Stream& stream, std::span<const SharedColumns> parts, int rows) {
  size_t row_floats = 0;
  for (const SharedColumns& part : parts) row_floats += share_floats(part, link_.number.ranks);
  if (rows == 0 || row_floats == 0) return;
  const size_t row_bytes = row_floats * sizeof(float) * static_cast<size_t>(link_.number.ranks);
  if (row_bytes > bytes_)
    throw Error(ErrorKind::kUnsupported, "the outputs that ranks exchange have " + std::to_string(row_bytes >> 20) +
                                             " MiB a row, more than --tensor-parallel-size allows with a device");
  const auto most = static_cast<int>(std::min(bytes_ / row_bytes, static_cast<size_t>(rows)));
  for (int first = 0; first < rows; first += most)
    gather_rows(stream, parts, row_floats, first, std::min(most, rows - first));
  ++link_.received->gathers;
}

void RankGather::gather_rows(Stream& stream, std::span<const SharedColumns> parts, size_t row_floats, int first,
                             int rows) {
  const RankNumber number = link_.number;
  const size_t block_floats = row_floats * static_cast<size_t>(rows);
  auto* const blocks = reinterpret_cast<float*>(memory_);
  float* const own_block = blocks + static_cast<size_t>(number.rank) * block_floats;
  const auto for_each_part = [&](const auto& f) {
    size_t at = 0;  // in a block
    for (const SharedColumns& part : parts) {
      const size_t stride = share_floats(part, number.ranks);
      f(part, part.y.from(first), at, stride);
      at += stride * static_cast<size_t>(rows);
    }
  };
  for_each_part([&](const SharedColumns& part, const Rows& y, size_t at, size_t stride) {
    const Share own = part.columns_of(number.share(part.units));
    if (own.size() > 0) copy(stream, y.columns(own.begin, own.size()), {own_block + at, own.size(), stride}, rows);
    link_.received->bytes += static_cast<size_t>(y.cols - own.size()) * static_cast<size_t>(rows) * sizeof(float);
  });
  stream.exchange(block_floats * sizeof(float));
  for_each_part([&](const SharedColumns& part, const Rows& y, size_t at, size_t stride) {
    stream.launch({.x = rows,
                   .y = (y.cols + GatheredColumns::kThreads - 1) / GatheredColumns::kThreads,
                   .threads = GatheredColumns::kThreads},
                  GatheredColumns{.blocks = Global<const float>(blocks + at),
                                  .block_floats = block_floats,
                                  .block_stride = stride,
                                  .to = writable(y),
                                  .cols = y.cols,
                                  .units = part.units,
                                  .width = part.width,
                                  .rank = number.rank,
                                  .ranks = number.ranks});
  });
}

void RankGather::exchange(size_t bytes) {
  const auto began = std::chrono::steady_clock::now();
  link_.exchange->gather(link_.number.rank, memory_, bytes);
  const auto took = std::chrono::steady_clock::now() - began;
  link_.received->nanoseconds += static_cast<uint64_t>(std::chrono::nanoseconds(took).count());
}

}  // namespace quire::cuda
