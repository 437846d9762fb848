// How the next token is chosen and when an answer ends. Names and defaults match OpenAI, vLLM and llama.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "quire/types.h"

namespace quire {

inline constexpr int kMaxLogprobs = 1024;  // the OpenAI API itself allows 20
inline constexpr int kMaxChoices = 128;    // OpenAI's limit for n
inline constexpr int kMaxStopStrings = 64;
inline constexpr int kMaxBadWords = 1024;
inline constexpr int kMaxStopBytes = 4096;  // of each stop string and bad word
inline constexpr int kMaxBreakers = 64;     // DRY's sequence breakers
inline constexpr int kMaxBreakerBytes = 256;

// A plain value; validate() checks it. The order in which the fields act is documented in src/sampling/sampler.h.
struct SamplingParams {
  // The distribution.
  float temperature = 1.0f;  // >= 0; 0 is greedy: the most probable token, on a tie the lowest id
  int top_k = 0;             // keep the k most probable tokens; 0 or -1: all
  float top_p = 1.0f;        // [0, 1]: keep the most probable tokens whose probabilities reach top_p; at least one
  float min_p = 0.0f;        // [0, 1]: keep tokens at least min_p times as probable as the best
  float typical_p = 1.0f;    // [0, 1]: locally typical sampling; keep tokens of mass typical_p closest to the entropy
  // [-1, 1000]: keep tokens whose logit is within so many standard deviations of the best one; up to 0: all
  float top_n_sigma = 0.0f;

  // Exclude top choices (XTC): at random, all tokens that reach a probability but the least probable of them.
  float xtc_probability = 0.0f;  // [0, 1] of doing so at a position; 0: never
  float xtc_threshold = 0.1f;    // [0, 1]; above 0.5 no two tokens reach it

  // Dynamic temperature: the entropy of the tokens left chooses it, from temperature - range, at least 0, to
  // temperature + range.
  float dynatemp_range = 0.0f;     // [0, 100]; 0: off
  float dynatemp_exponent = 1.0f;  // [0, 100]: of the entropy, as a fraction of the largest possible one

  // Mirostat (Basu et al. 2021): keeps the surprise of the answer's tokens near tau. Replaces all limits above.
  int mirostat = 0;           // 0: off; 1, 2: Mirostat, Mirostat 2.0
  float mirostat_tau = 5.0f;  // [0, 100], in bits
  float mirostat_eta = 0.1f;  // [0, 1]: how fast it adapts

  // Penalties. The repetition penalty counts tokens of prompt and answer, the other two those of the answer.
  float repetition_penalty = 1.0f;  // [0.01, 100]; above 1 discourages
  float frequency_penalty = 0.0f;   // [-2, 2], subtracted once per occurrence
  float presence_penalty = 0.0f;    // [-2, 2], subtracted once
  int repeat_last_n = -1;           // number of recent tokens that the penalties count; -1: all, 0: none

  // DRY ("don't repeat yourself"): a token that would continue a repetition of the last n tokens, n at least
  // dry_allowed_length, loses dry_multiplier * dry_base^(n - dry_allowed_length) of its logit.
  float dry_multiplier = 0.0f;  // [0, 100]; 0: off
  float dry_base = 1.75f;       // [1, 100]
  int dry_allowed_length = 2;   // >= 1
  int dry_penalty_last_n = -1;  // number of recent tokens of prompt and answer to look at; -1: all, 0: none
  std::vector<std::string> dry_sequence_breakers = {"\n", ":", "\"", "*"};  // no repetition extends over these texts

  // Added to the logits: [-100, 100], or -infinity to ban a token. Duplicate entries add up.
  std::vector<std::pair<TokenId, float>> logit_bias = {};

  // What may be generated.
  std::vector<TokenId> allowed_token_ids = {};  // only these tokens; empty: all
  std::vector<std::string> bad_words = {};      // not empty; banned as token runs, with and without a leading space

  // The same seed gives the same answer. The engine never draws a seed; the server does if the request has none.
  uint64_t seed = 0;

  // The end of the answer.
  std::optional<int> max_tokens = {};        // >= 1, with prompt_logprobs >= 0; unset: up to the context length
  int min_tokens = 0;                        // <= max_tokens; until then no end-of-sequence or stop token is chosen
  bool ignore_eos = false;                   // the end-of-sequence token does not end the answer
  std::vector<std::string> stop = {};        // not empty; text that ends the answer
  std::vector<TokenId> stop_token_ids = {};  // tokens that end the answer
  bool include_stop_str_in_output = false;   // keep the stop string in the answer

  // What is returned.
  std::optional<int> logprobs = {};         // [0, kMaxLogprobs] alternatives per token; 0: the chosen token's only
  std::optional<int> prompt_logprobs = {};  // the same for the prompt's tokens
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

// Throws Error (kInvalid) naming the field, its value and the allowed range. NaN is never allowed.
void validate(const SamplingParams& params, int vocab_size);

}  // namespace quire
