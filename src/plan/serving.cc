#include "plan/serving.h"

#include <algorithm>

#include "plan/last_fitting.h"

namespace quire {

ServingTimes serving_times(const ServingLoad& load, const StepSeconds& seconds) {
  const double users = load.users, answer = load.answer;
  const int chunks = (load.prompt + load.chunk - 1) / load.chunk;
  const int rows = (load.prompt + chunks - 1) / chunks;
  const int middle = load.prompt + load.answer / 2;  // the mean context of an answer's tokens
  // A step with the middle chunk of a prompt, which attends to the mean number of tokens, and `decoding` answers.
  const auto mixed = [&](int decoding) {
    StepLoad step = prefill_load(rows, (load.prompt - rows) / 2, false);
    if (decoding > 0) step.spans.push_back({decoding, 1, middle});
    step.logits = decoding;
    return seconds(step);
  };
  ServingTimes times;
  times.decode_step = seconds(decode_load(load.users, middle));
  double cycle = 0;  // seconds from one request of a user to the next
  // While the others compute their prompts, a user decodes a token in each of their steps.
  const double alone = answer - 1 - (users - 1) * chunks;
  if (alone >= 0) {
    const double step = mixed(load.users - 1), prompt = chunks * step;
    cycle = users * prompt + alone * times.decode_step;
    if (load.answer > 1) times.tpot = (cycle - prompt) / (answer - 1);
    times.ttft = prompt + (load.users > 1 ? times.decode_step / 2 : 0);
  } else {
    // Each step has a chunk; of the users, as many decode as the steps of a cycle have tokens to give.
    const double step = mixed(std::min(load.users - 1, static_cast<int>((answer - 1) / chunks)));
    times.prefill_bound = load.users > 1;
    cycle = users * chunks * step;
    if (load.answer > 1) times.tpot = step;
    times.ttft = cycle - (answer - 1) * times.tpot;
  }
  times.output_rate = users * answer / cycle;
  times.prompt_rate = users * load.prompt / cycle;
  return times;
}

int most_users(ServingLoad load, int most, std::optional<double> ttft, std::optional<double> tpot,
               const StepSeconds& seconds) {
  const auto fits = [&](int users) {
    load.users = users;
    const ServingTimes times = serving_times(load, seconds);
    return (!ttft || times.ttft <= *ttft) && (!tpot || times.tpot <= *tpot);
  };
  if (most < 1 || !fits(1)) return 0;
  return last_fitting(1, most, fits);
}

std::optional<int> compute_bound_batch(const ModelWork& model, const MachineRates& rates, int context) {
  const auto bound = [&](int sequences) {
    const Work work = total_work(step_work(model, decode_load(sequences, context - 1)));
    return multiplying_seconds(work, rates) >= reading_seconds(work, rates);
  };
  int high = 1;
  while (!bound(high)) {
    if (high >= 1 << 20) return std::nullopt;
    high *= 2;
  }
  int low = high / 2;  // not bound, or 0
  while (high - low > 1) {
    const int middle = low + (high - low) / 2;
    (bound(middle) ? high : low) = middle;
  }
  return high;
}

double price_per_million(double price_per_hour, double tokens_per_second) {
  return price_per_hour / 3600 / tokens_per_second * 1e6;
}

}  // namespace quire
