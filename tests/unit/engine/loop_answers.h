// What an engine's loop answers, on the caller's thread.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "engine/engine_loop.h"
#include "unit/engine/tiny_engine.h"

namespace quire::testing {

inline void submit(EngineLoop& loop, const LoadedModel& model, Request request, Engine::Callback callback) {
  const auto state = prepare(std::move(request), std::move(callback), {}, model.info.max_model_len);
  Sequences arrived;
  arrived.emplace_back(state, 0, std::move(state->prompt), nullptr);
  loop.add(std::move(arrived));
}

// Answers the requests together.
inline std::vector<Answer> loop_answers(EngineLoop& loop, const LoadedModel& model,
                                        const std::vector<Request>& requests) {
  std::vector<Answer> answers(requests.size());
  for (size_t i = 0; i < requests.size(); ++i)
    submit(loop, model, requests[i], [&answers, i](const Output& out) { answers[i].add(out); });
  while (!loop.idle()) loop.step();
  return answers;
}

}  // namespace quire::testing
