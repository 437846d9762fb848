// How fast answers came, compared with the memory bandwidth that bounds decoding.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "quire/engine.h"

namespace quire {

// Of one answer, or the sum of several.
struct ChatTimings {
  int answers = 0;
  int prompt_tokens = 0, completion_tokens = 0;
  int prefilled_tokens = 0;  // in prompts whose answer began, without those found in the prefix cache
  int decoded_tokens = 0;    // without the first of each answer, which prefill computes
  int drafted_tokens = 0, accepted_tokens = 0;  // by speculative decoding
  double ttft_seconds = 0, decode_seconds = 0;
  std::vector<DrafterStats> drafters = {};  // for all requests of the engine

  double bandwidth = 0;  // bytes per second that this machine can read; 0: not measured

  void add(const Usage& usage);
  // Takes the drafters' counters, once they include the answers.
  void read_drafters(const Engine& engine);

  double prefill_rate() const;  // prompt tokens computed per second, until the first token; 0: not measured
  double decode_rate() const;   // tokens per second after the first; 0: not measured
  double read_rate(const ModelInfo& model) const;  // weight bytes that decoding read per second
};

// Lines for a person: prompt tokens and time to first token, answer tokens and decoding speed, and with speculative
// decoding the drafts.
std::string to_text(const ChatTimings& timings, const ModelInfo& model);
nlohmann::ordered_json to_json(const ChatTimings& timings, const ModelInfo& model);

}  // namespace quire
