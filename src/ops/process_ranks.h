// Ranks that are processes: they send each other their columns.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/team.h"
#include "ops/communicator.h"
#include "ops/process_group.h"

namespace quire {

// This process's connection to the others. Columns are copied into one block for each exchange, and from the blocks of the
// others to their places.
class ProcessRanks final : public Communicator {
 public:
  // group, and the team, which copies: must outlive it.
  ProcessRanks(ProcessGroup& group, Team& team);

  void gather(std::span<const SharedColumns> parts, int rows) override;

  // Memory for blocks, besides what one row of a gather may take in addition.
  static constexpr size_t kBlockBytes = size_t{4} << 20;

 private:
  size_t row_bytes(std::span<const SharedColumns> parts, int rank) const;
  void gather_rows(std::span<const SharedColumns> parts, int begin, int rows);

  ProcessGroup& group_;
  Team& team_;
  std::vector<std::byte> mine_, all_;
  std::vector<size_t> row_bytes_, sizes_;  // by rank
};

}  // namespace quire
