#include "ops/process_ranks.h"

#include <algorithm>
#include <cassert>
#include <chrono>
#include <cstring>
#include <numeric>

namespace quire {
namespace {

// Fewer bytes are copied by one thread: waking others takes longer.
constexpr size_t kLeastPackedTogether = size_t{1} << 16;
constexpr int kRowsPackedTogether = 16;

// copy(row) for all rows.
template <class CopyRow>
void copy_rows(Team& team, int rows, size_t bytes, const CopyRow& copy) {
  const auto copy_some = [&](int begin, int end) {
    for (int row = begin; row < end; ++row) copy(row);
  };
  if (bytes < kLeastPackedTogether) return copy_some(0, rows);
  team.for_tiles((rows + kRowsPackedTogether - 1) / kRowsPackedTogether, [&](int tile, int) {
    copy_some(tile * kRowsPackedTogether, std::min(rows, (tile + 1) * kRowsPackedTogether));
  });
}

// Without clearing what is there already.
std::span<std::byte> first_bytes(std::vector<std::byte>& memory, size_t count) {
  if (memory.size() < count) memory.resize(count);
  return std::span(memory).first(count);
}

}  // namespace

ProcessRanks::ProcessRanks(ProcessGroup& group, Team& team)
    : Communicator(group.rank(), group.ranks()),
      group_(group),
      team_(team),
      row_bytes_(static_cast<size_t>(group.ranks())),
      sizes_(static_cast<size_t>(group.ranks())) {}

size_t ProcessRanks::row_bytes(std::span<const SharedColumns> parts, int rank) const {
  size_t bytes = 0;
  for (const SharedColumns& part : parts)
    bytes += static_cast<size_t>(part.columns_of(share_of(part.units, rank, ranks())).size()) * sizeof(float);
  return bytes;
}

void ProcessRanks::gather(std::span<const SharedColumns> parts, int rows) {
  assert(parts.size() <= kMostParts);
  const auto began = std::chrono::steady_clock::now();
  for (int rank = 0; rank < ranks(); ++rank) row_bytes_[static_cast<size_t>(rank)] = row_bytes(parts, rank);
  const size_t all = std::reduce(row_bytes_.begin(), row_bytes_.end());
  const int block = static_cast<int>(std::max<size_t>(1, kBlockBytes / std::max<size_t>(1, all)));
  for (int row = 0; row < rows; row += block) gather_rows(parts, row, std::min(block, rows - row));
  ++counts_.gathers;
  counts_.bytes += (all - row_bytes_[static_cast<size_t>(rank())]) * static_cast<size_t>(rows);
  const auto took = std::chrono::steady_clock::now() - began;
  counts_.nanoseconds += static_cast<uint64_t>(std::chrono::nanoseconds(took).count());
}

void ProcessRanks::gather_rows(std::span<const SharedColumns> parts, int begin, int rows) {
  for (size_t rank = 0; rank < sizes_.size(); ++rank) sizes_[rank] = row_bytes_[rank] * static_cast<size_t>(rows);
  const std::span<std::byte> mine = first_bytes(mine_, sizes_[static_cast<size_t>(rank())]),
                             all = first_bytes(all_, std::reduce(sizes_.begin(), sizes_.end()));
  const auto row_of = [&](const SharedColumns& part, const Share& columns, int row) {
    return part.y.columns(columns.begin, columns.size()).row(begin + row);
  };
  copy_rows(team_, rows, mine.size(), [&](int row) {
    std::byte* to = mine.data() + static_cast<size_t>(row) * row_bytes_[static_cast<size_t>(rank())];
    for (const SharedColumns& part : parts) {
      const Share columns = part.columns_of(share(part.units));
      const size_t bytes = static_cast<size_t>(columns.size()) * sizeof(float);
      if (bytes == 0) continue;
      std::memcpy(to, row_of(part, columns, row), bytes);
      to += bytes;
    }
  });
  group_.exchange(mine, sizes_, all);
  copy_rows(team_, rows, all.size(), [&](int row) {
    size_t block = 0;  // where the rank's bytes begin
    for (int rank = 0; rank < ranks(); block += sizes_[static_cast<size_t>(rank)], ++rank) {
      if (rank == this->rank()) continue;
      const std::byte* from = all.data() + block + static_cast<size_t>(row) * row_bytes_[static_cast<size_t>(rank)];
      for (const SharedColumns& part : parts) {
        const Share columns = part.columns_of(share_of(part.units, rank, ranks()));
        const size_t bytes = static_cast<size_t>(columns.size()) * sizeof(float);
        if (bytes == 0) continue;
        std::memcpy(row_of(part, columns, row), from, bytes);
        from += bytes;
      }
    }
  });
}

}  // namespace quire
