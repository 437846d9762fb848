// Stages that are processes: each sends its rows to the next one.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "ops/process_group.h"
#include "ops/stage_link.h"

namespace quire {

// This process's connection to its neighbours: stage s is rank s. The backend must be the CPU's. Rows are copied into one block
// for each message, and from there to their places. Throws what the group throws.
class ProcessStages final : public StageLink {
 public:
  // The group must outlive it.
  explicit ProcessStages(ProcessGroup& group) : group_(group) {}

  void send(std::span<const Rows> parts, int first_row, int rows) override;
  void receive(std::span<const Rows> parts, int first_row, int rows) override;

 private:
  ProcessGroup& group_;
  std::vector<std::byte> block_;
};

}  // namespace quire
