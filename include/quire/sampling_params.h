// How the next token is chosen and when an answer ends. Names and defaults are those of OpenAI, vLLM and llama.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "quire/types.h"

namespace quire {

inline constexpr int kMaxLogprobs = 1024;   // the OpenAI API itself allows 20
inline constexpr int kMaxChoices = 128;     // OpenAI's limit of n
inline constexpr int kMaxStopStrings = 64;  // each of at most kMaxStopBytes
inline constexpr int kMaxStopBytes = 4096;
inline constexpr int kMaxBadWords = 1024;  // each of at most kMaxStopBytes

// A plain value. The order in which the fields act is documented in src/sampling/sampler.h.
struct SamplingParams {
  // The distribution.
  float temperature = 1.0f;  // >= 0; 0 is greedy: the most probable token, the lowest id on a tie
  int top_k = 0;             // keep the k most probable tokens; 0 or -1: all
  float top_p = 1.0f;        // [0, 1]: keep the most probable tokens that together reach top_p; at least one
  float min_p = 0.0f;        // [0, 1]: keep tokens at least min_p times as probable as the best
  float typical_p = 1.0f;    // [0, 1]: keep the tokens nearest to the distribution's entropy that together reach it

  // Penalties. Repetition sees prompt and answer, frequency and presence the answer alone.
  float repetition_penalty = 1.0f;  // [0.01, 100]; above 1 discourages
  float frequency_penalty = 0.0f;   // [-2, 2], times the number of occurrences
  float presence_penalty = 0.0f;    // [-2, 2], once
  int repeat_last_n = -1;           // the penalties see this many last tokens; -1: all, 0: none

  // Added to the logits: [-100, 100], or -infinity for "never". A token named twice gets both.
  std::vector<std::pair<TokenId, float>> logit_bias = {};

  // What may be generated.
  std::vector<TokenId> allowed_token_ids = {};  // these tokens alone; empty: all
  std::vector<std::string> bad_words = {};  // never their tokens in a row, as they stand or behind a space; none empty

  // The same seed gives the same answer. Whoever wants chance draws a seed; the server does when a request has none.
  uint64_t seed = 0;

  // The end of the answer.
  std::optional<int> max_tokens = {};        // >= 1, with prompt_logprobs >= 0; none: until the context is full
  int min_tokens = 0;                        // no end-of-sequence and no stop_token_ids before; <= max_tokens
  bool ignore_eos = false;                   // the end-of-sequence token does not end the answer
  std::vector<std::string> stop = {};        // text that ends the answer; none of them empty
  std::vector<TokenId> stop_token_ids = {};  // tokens that end the answer
  bool include_stop_str_in_output = false;   // the answer keeps the stop string that ended it

  // What comes back.
  std::optional<int> logprobs =
      {};  // [0, kMaxLogprobs] most probable tokens with each token; 0: the chosen one's alone
  std::optional<int> prompt_logprobs = {};  // likewise for each token of the prompt
  bool skip_special_tokens = true;          // false: the text shows special tokens by name
  int n = 1;                                // [1, kMaxChoices] answers to one prompt

  bool operator==(const SamplingParams&) const = default;
};

// The sampling settings that a model's authors recommend, from the first of: the GGUF keys `general.sampling.*`,
// generation_config.json, the entry in models.json. An empty field: no recommendation.
struct SamplingDefaults {
  std::optional<float> temperature = {};
  std::optional<float> top_p = {};
  std::optional<float> min_p = {};
  std::optional<float> repetition_penalty = {};
  std::optional<int> top_k = {};

  bool operator==(const SamplingDefaults&) const = default;
};

// Throws Error (kInvalid) that names the field, its value and what is allowed. NaN is never allowed.
void validate(const SamplingParams& params, int vocab_size);

}  // namespace quire
