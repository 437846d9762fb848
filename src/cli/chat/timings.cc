#include "cli/chat/timings.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <numeric>
#include <span>
#include <thread>
#include <utility>

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

void ChatTimings::read_drafters(const Engine& engine) {
  // The engine counts a step after it has told the clients.
  EngineStats stats = engine.stats();
  for (int waits = 0; !stats.drafters.empty() && waits < 100 && std::cmp_less(stats.finished_requests, answers);
       ++waits) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    stats = engine.stats();
  }
  drafters = std::move(stats.drafters);
}

double ChatTimings::prefill_rate() const { return ttft_seconds > 0 ? prefilled_tokens / ttft_seconds : 0; }
double ChatTimings::decode_rate() const {
  return decoded_tokens > 0 && decode_seconds > 0 ? decoded_tokens / decode_seconds : 0;
}
double ChatTimings::read_rate(const ModelInfo& model) const {
  return decode_rate() * static_cast<double>(model.decode_bytes);
}

namespace {

uint64_t sum(std::span<const uint64_t> counts) { return std::accumulate(counts.begin(), counts.end(), uint64_t{0}); }

}  // namespace

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
  for (const DrafterStats& d : t.drafters) {
    if (d.drafted[0] == 0 && d.errors == 0) continue;
    text += fmt::format("\n  {}: {} drafts, {} of {} tokens right, {:.1f} ms drafting", d.name, d.drafted[0],
                        sum(d.accepted), sum(d.drafted), 1e3 * d.seconds);
    if (d.errors > 0) text += fmt::format(", {} errors", d.errors);
  }
  return text + "\n";
}

nlohmann::ordered_json to_json(const ChatTimings& t, const ModelInfo& model) {
  auto drafters = nlohmann::ordered_json::array();
  for (const DrafterStats& d : t.drafters) {
    drafters.push_back({{"name", d.name},
                        {"drafts", d.drafted[0]},
                        {"drafted_tokens", sum(d.drafted)},
                        {"accepted_tokens", sum(d.accepted)},
                        {"seconds", d.seconds},
                        {"errors", d.errors}});
  }
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
      {"drafters", drafters},
  };
}

}  // namespace quire
