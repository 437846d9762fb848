#include "cli/calibration/calibrate.h"

#include <algorithm>
#include <cassert>

#include "cli/text/chunk_run.h"
#include "engine/single_sequence.h"

namespace quire {
namespace {

// Takes the collector away again, whatever happens.
class Observed {
 public:
  Observed(LoadedModel& model, InputObserver& observer) : operations_(model.decoder()->operations()) {
    operations_.observe_inputs(&observer);
  }
  ~Observed() { operations_.observe_inputs(nullptr); }
  Observed(const Observed&) = delete;
  Observed& operator=(const Observed&) = delete;

 private:
  Operations& operations_;
};

}  // namespace

void calibrate(LoadedModel& model, const TextChunks& text, InputCollector& inputs, bool with_output,
               const std::function<void(size_t computed, size_t total)>& progress) {
  assert(model.decoder());
  const auto most = static_cast<size_t>(with_output ? kScoredRows : model.options.max_num_batched_tokens);
  SingleSequence sequence(model);
  const Observed observed(model, inputs);
  for (size_t i = 0; i < text.count(); ++i) {
    progress(i, text.count());
    sequence.clear();
    for (auto rest = text.chunk(i); !rest.empty();) {
      const auto rows = rest.first(std::min(rest.size(), most));
      sequence.append(rows, with_output);
      rest = rest.subspan(rows.size());
    }
  }
  progress(text.count(), text.count());
}

}  // namespace quire
