// What an engine's loop answers, on the caller's thread.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "engine/engine_loop.h"
#include "unit/engine/tiny_engine.h"

namespace quire::testing {

// Answers the requests together.
inline std::vector<Answer> loop_answers(EngineLoop& loop, const LoadedModel& model,
                                        const std::vector<Request>& requests) {
  std::vector<Answer> answers(requests.size());
  Sequences arrived;
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto state = prepare(
        requests[i], [&answers, i](const Output& out) { answers[i].add(out); }, {}, model.info.max_model_len);
    arrived.emplace_back(state, 0, std::move(state->prompt), nullptr);
  }
  loop.add(std::move(arrived));
  while (!loop.idle()) loop.step();
  return answers;
}

}  // namespace quire::testing
