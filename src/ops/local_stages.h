// Stages that are threads of this process: rows cross a border through a buffer of both in the host's memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ops/backend.h"
#include "ops/stage_link.h"

namespace quire {

// Once a stage has given up, all stages that wait throw RankGone (ops/communicator.h).
class LocalStages {
 public:
  // backends: those of the stages, which must outlive this. widths: floats of a row at each border, of which there is one less
  // than stages. max_rows: of a step. spins: a stage that waits keeps its core for a while.
  LocalStages(std::span<Backend* const> backends, std::span<const int> widths, int max_rows, bool spins);
  ~LocalStages();
  LocalStages(const LocalStages&) = delete;
  LocalStages& operator=(const LocalStages&) = delete;

  int size() const { return static_cast<int>(stages_.size()); }
  StageLink& of(int stage) const;
  static size_t memory_bytes(std::span<const int> widths, int max_rows);

  // For a stage that cannot finish this step: receive() then throws RankGone in the others, until reset(), which must be called
  // while no stage works.
  void give_up();
  void reset();

 private:
  struct Border;
  class LocalLink;

  std::atomic<bool> gone_{false};
  std::vector<std::unique_ptr<Border>> borders_;
  std::vector<std::unique_ptr<LocalLink>> stages_;
};

}  // namespace quire
