// Computes an Explanation next to the engine's steps.
#pragma once

#include "engine/explain/explanation.h"
#include "engine/loaded_model.h"

namespace quire {

// A pass of the model's decoder over the prompt, on the calling thread and the model's team, which it has for the whole pass:
// it waits for the step that is running, and the next one waits for it. Activations and cache are of its own, for
// ExplainRequest::kMostTokens tokens, and are freed before it returns. Throws Error: no tokens or too many, a token outside the
// vocabulary, no such layer or head, or memory is short (kResource).
Explanation explain(const LoadedModel& model, const ExplainRequest& request);

}  // namespace quire
