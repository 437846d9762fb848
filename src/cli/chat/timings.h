// How fast answers came, beside what the memory had to deliver for them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "quire/engine.h"

namespace quire {

// Of one answer, or the sum of several.
struct ChatTimings {
  int answers = 0;
  int prompt_tokens = 0, completion_tokens = 0;
  int prefilled_tokens = 0;  // of prompts whose answer began, without what the prefix cache held
  int decoded_tokens = 0;    // without each answer's first, which prefill gives
  double ttft_seconds = 0, decode_seconds = 0;

  double bandwidth = 0;  // bytes a second that this machine reads; 0: not measured

  void add(const Usage& usage);

  double prefill_rate() const;  // computed prompt tokens a second until the first token; 0: nothing measured
  double decode_rate() const;   // tokens a second after it; 0: nothing measured
  double read_rate(const ModelInfo& model) const;  // bytes of weights a second that decoding read
};

// Measures bandwidth, in a few hundredths of a second.
void measure_limit(ChatTimings& timings, const ModelInfo& model);

// Two lines for a person: time to first token, rates, and the bytes behind them beside the limit.
std::string to_text(const ChatTimings& timings, const ModelInfo& model);
nlohmann::ordered_json to_json(const ChatTimings& timings, const ModelInfo& model);

}  // namespace quire
