#include "engine/request_state.h"

#include <algorithm>
#include <utility>

namespace quire {

std::shared_ptr<RequestState> prepare(Request request, Engine::Callback callback, const TokenIds& model_end_tokens,
                                      int max_model_len) {
  auto state = std::make_shared<RequestState>(std::move(request));
  RequestState& r = *state;
  r.callback = std::move(callback);
  if (!r.sampling.ignore_eos) r.end_tokens = model_end_tokens;
  r.banned_early = model_end_tokens;
  r.banned_early.insert(r.banned_early.end(), r.sampling.stop_token_ids.begin(), r.sampling.stop_token_ids.end());
  r.stops = prepare_stops(std::exchange(r.sampling.stop, {}));
  r.prompt_tokens = static_cast<int>(r.prompt.size());
  r.max_new_tokens = std::min(r.sampling.max_tokens.value_or(max_model_len), max_model_len - r.prompt_tokens);
  r.choices_left = r.sampling.n;
  if (r.sampling.prompt_logprobs) {
    r.prompt_logprobs.resize(r.prompt.size());
    r.prompt_logprobs[0].id = r.prompt[0];
  }
  r.submitted = Clock::now();
  constexpr double kForever = 1e9;  // seconds; more would overflow the clock
  if (r.timeout > 0 && r.timeout < kForever) {
    r.deadline = r.submitted + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(r.timeout));
  }
  return state;
}

}  // namespace quire
