#include "ops/process_stages.h"

namespace quire {

void ProcessStages::send(std::span<const Rows> parts, int, int rows) {
  const size_t bytes = row_bytes(parts);
  block_.resize(bytes * static_cast<size_t>(rows));
  pack_rows(parts, rows, block_, bytes);
  group_.send_to(group_.rank() + 1, block_);
  sent_bytes_ += block_.size();
}

void ProcessStages::receive(std::span<const Rows> parts, int, int rows) {
  const size_t bytes = row_bytes(parts);
  block_.resize(bytes * static_cast<size_t>(rows));
  group_.receive_from(group_.rank() - 1, block_);
  unpack_rows(block_, bytes, parts, rows);
}

}  // namespace quire
