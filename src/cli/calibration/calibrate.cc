#include "cli/calibration/calibrate.h"

#include <algorithm>
#include <cassert>

#include "cli/text/chunk_run.h"

namespace quire {
namespace {

// Takes the observer away again, whatever happens.
class Observed {
 public:
  Observed(Operations& operations, InputObserver& observer) : operations_(operations) {
    operations_.observe_inputs(&observer);
  }
  ~Observed() { operations_.observe_inputs(nullptr); }
  Observed(const Observed&) = delete;
  Observed& operator=(const Observed&) = delete;

 private:
  Operations& operations_;
};

}  // namespace

void calibrate(SingleSequence& sequence, Operations& operations, const TextChunks& text, const CalibrationSteps& steps,
               InputObserver& inputs, const std::function<void(size_t computed, size_t total)>& progress) {
  const auto most = static_cast<size_t>(steps.rows);
  const Observed observed(operations, inputs);
  for (size_t i = 0; i < text.count(); ++i) {
    progress(i, text.count());
    sequence.clear();
    const std::span<const TokenId> chunk = text.chunk(i);
    for (size_t at = 0; at < chunk.size(); at += most) {
      if (steps.begin) steps.begin(i * text.size + at);
      sequence.append(chunk.subspan(at, std::min(most, chunk.size() - at)), steps.all_logits);
    }
  }
  progress(text.count(), text.count());
}

void calibrate(LoadedModel& model, const TextChunks& text, InputObserver& inputs, bool with_output,
               const std::function<void(size_t computed, size_t total)>& progress) {
  assert(model.decoder());
  SingleSequence sequence(model);
  calibrate(sequence, model.decoder()->operations(), text,
            {.rows = with_output ? kScoredRows : model.options.max_num_batched_tokens, .all_logits = with_output},
            inputs, progress);
}

}  // namespace quire
