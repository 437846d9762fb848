#include "cli/chat/timings.h"

#include <fmt/format.h>

#include <algorithm>

namespace quire {

void ChatTimings::add(const Usage& usage) {
  ++answers;
  prompt_tokens += usage.prompt_tokens;
  completion_tokens += usage.completion_tokens;
  if (usage.completion_tokens == 0) return;  // cancelled before the first token
  prefilled_tokens += usage.prompt_tokens - usage.cached_tokens;
  ttft_seconds += usage.ttft_seconds;
  decoded_tokens += usage.completion_tokens - 1;
  drafted_tokens += usage.drafted_tokens;
  accepted_tokens += usage.accepted_tokens;
  decode_seconds += std::max(usage.seconds - usage.ttft_seconds, 0.0);
}

double ChatTimings::prefill_rate() const { return ttft_seconds > 0 ? prefilled_tokens / ttft_seconds : 0; }
double ChatTimings::decode_rate() const {
  return decoded_tokens > 0 && decode_seconds > 0 ? decoded_tokens / decode_seconds : 0;
}
double ChatTimings::read_rate(const ModelInfo& model) const {
  return decode_rate() * static_cast<double>(model.decode_bytes);
}

std::string to_text(const ChatTimings& t, const ModelInfo& model) {
  std::string text = fmt::format("prompt: {} tokens", t.prompt_tokens);
  if (t.prefill_rate() > 0) {
    text += fmt::format(", first token after {:.3f} s{}, {:.1f} tok/s", t.ttft_seconds / std::max(t.answers, 1),
                        t.answers > 1 ? " on average" : "", t.prefill_rate());
  }
  text += fmt::format("\nanswer: {} tokens", t.completion_tokens);
  if (t.decode_rate() > 0) {
    text += fmt::format(", {:.1f} tok/s", t.decode_rate());
    const double rate = t.read_rate(model);
    if (t.bandwidth > 0 && rate > t.bandwidth) {  // more than memory gives
      text += fmt::format(" ({:.1f} GB/s of weights, read from the processor's cache)", rate / 1e9);
    } else if (t.bandwidth > 0) {
      text += fmt::format(" ({:.2f} of {:.1f} GB/s memory bandwidth, {:.0f} %)", rate / 1e9, t.bandwidth / 1e9,
                          100 * rate / t.bandwidth);
    }
  }
  if (t.drafted_tokens > 0) {
    text += fmt::format("\ndrafts: {} of {} tokens right, {:.2f} tokens a step", t.accepted_tokens, t.drafted_tokens,
                        t.decoded_tokens / std::max(1.0, static_cast<double>(t.decoded_tokens - t.accepted_tokens)));
  }
  return text + "\n";
}

nlohmann::ordered_json to_json(const ChatTimings& t, const ModelInfo& model) {
  return {
      {"ttft_seconds", t.ttft_seconds},
      {"decode_seconds", t.decode_seconds},
      {"prefill_tokens_per_second", t.prefill_rate()},
      {"decode_tokens_per_second", t.decode_rate()},
      {"decode_bytes_per_token", model.decode_bytes},
      {"decode_bytes_per_second", t.read_rate(model)},
      {"read_bandwidth", t.bandwidth},
      {"drafted_tokens", t.drafted_tokens},
      {"accepted_tokens", t.accepted_tokens},
  };
}

}  // namespace quire
