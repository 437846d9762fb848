// From the final hidden states of a prompt to an embedding or scores.
#pragma once

#include <vector>

#include "engine/loaded_model.h"
#include "engine/request_state.h"
#include "engine/scheduler.h"

namespace quire {

class PoolStage {
 public:
  // The model must outlive the stage.
  explicit PoolStage(const LoadedModel& model);

  // Takes the hidden states of a chunk whose first row is `row` of the decoder's last batch, into r.hidden.
  void add(RequestState& r, const Chunk& chunk, int row);
  // After the last chunk: makes r.hidden the result.
  void finish(RequestState& r) const;

 private:
  const LoadedModel& model_;
  std::vector<float> hidden_;  // of one row
};

}  // namespace quire
