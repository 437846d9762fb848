// What a model's layers hand on to those after them, in a file: for stages that compute a whole text one after the other.
#pragma once

#include <cstddef>
#include <filesystem>
#include <vector>

#include "ops/stage_link.h"

namespace quire {

// Each stage reads what the one before it has written of the same rows, and writes its own in that place.
class RowsFile final : public StageLink {
 public:
  // folder: where the file is, without a name, so that it goes with the process. width: most floats of a row. Throws Error: the
  // folder cannot be written.
  RowsFile(const std::filesystem::path& folder, int width);
  ~RowsFile() override;
  RowsFile(const RowsFile&) = delete;
  RowsFile& operator=(const RowsFile&) = delete;

  // row: in the file, of a step's first row.
  void begin_step(size_t row) { step_ = row; }

  // Both throw Error: the disk is full or failing.
  void send(std::span<const Rows> parts, int first_row, int rows) override;
  void receive(std::span<const Rows> parts, int first_row, int rows) override;

 private:
  uint64_t offset_of(int first_row) const;

  const std::filesystem::path folder_;
  const size_t stride_;  // bytes from row to row
  int descriptor_ = -1;
  size_t step_ = 0;
  std::vector<std::byte> block_;
};

}  // namespace quire
