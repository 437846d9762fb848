#include "engine/watch/step_history.h"

#include <algorithm>

namespace quire {

StepHistory::StepHistory()
    : steps_(EngineSnapshot::kMostSteps), first_parts_(steps_.size()), parts_(EngineSnapshot::kMostParts) {}

void StepHistory::add_parts(std::span<const Chunk> chunks, std::span<const Sampling> sampling) {
  begun_ = added_;
  if (chunks.size() + sampling.size() > parts_.size()) return;  // they would overwrite each other
  for (const Chunk& chunk : chunks) {
    add({.sequence = static_cast<uint64_t>(chunk.id),
         .first = chunk.first,
         .rows = chunk.rows,
         .drafts = chunk.drafts,
         .decodes = chunk.decodes});
  }
  // Both are in the same order, but only some chunks have sampled rows. A choice that forks has no chunk of its own.
  size_t at = 0;
  for (const Sampling& s : sampling) {
    if (!s.sequence || s.tokens == 0) continue;
    const SequenceId id = s.sequence->id;
    const auto chunk = std::find_if(chunks.begin() + static_cast<ptrdiff_t>(at), chunks.end(),
                                    [&](const Chunk& c) { return c.id == id; });
    if (chunk == chunks.end()) {
      add({.sequence = static_cast<uint64_t>(id), .first = s.position + 1, .tokens = s.tokens});
    } else {
      at = static_cast<size_t>(chunk - chunks.begin());
      part(begun_ + at).tokens += s.tokens;
    }
  }
}

void StepHistory::end_step(StepSnapshot step) {
  step.number = ++last_;
  step.parts = static_cast<uint32_t>(added_ - begun_);
  for (uint64_t i = begun_; i < added_; ++i) {
    const StepPart& p = part(i);
    (p.decodes ? step.decode_rows : step.prompt_rows) += p.rows + p.drafts;
  }
  steps_[last_ % steps_.size()] = step;
  first_parts_[last_ % steps_.size()] = begun_;
}

void StepHistory::copy_to(EngineSnapshot& to) const {
  to.steps.clear();
  to.parts.clear();
  // Parts of older steps may have been overwritten by those of later ones, or of a step that is not done.
  const uint64_t oldest_part = added_ - std::min<uint64_t>(added_, parts_.size());
  const uint64_t kept = std::min<uint64_t>(last_, steps_.size());
  for (uint64_t number = last_ - kept + 1; number <= last_; ++number) {
    StepSnapshot step = steps_[number % steps_.size()];
    const uint64_t first = first_parts_[number % steps_.size()];
    if (first < oldest_part) step.parts = 0;
    step.first_part = static_cast<uint32_t>(to.parts.size());
    for (uint64_t i = first; i < first + step.parts; ++i) to.parts.push_back(parts_[i % parts_.size()]);
    to.steps.push_back(step);
  }
}

}  // namespace quire
