// How the next token is chosen and when an answer ends. Names and defaults match OpenAI, vLLM and llama.cpp.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "quire/types.h"

namespace quire {

inline constexpr int kMaxLogprobs = 1024;  // the OpenAI API itself allows 20
inline constexpr int kMaxChoices = 128;    // OpenAI's limit for n
inline constexpr int kMaxStopStrings = 64;
inline constexpr int kMaxBadWords = 1024;
inline constexpr int kMaxStopBytes = 4096;  // in each stop string and bad word
inline constexpr int kMaxBreakers = 64;     // DRY's sequence breakers
inline constexpr int kMaxBreakerBytes = 256;
inline constexpr int kMaxCount = std::numeric_limits<int>::max();  // stands for "no limit" in numbers of tokens

// A plain value; validate() checks it. kSamplingParameters has the ranges of its numbers; src/sampling/sampler.h says in
// which order the members act.
struct SamplingParams {
  // The distribution.
  float temperature = 1.0f;  // 0 is greedy: the most probable token, on a tie the lowest id
  int top_k = 0;             // keep the k most probable tokens; 0 or -1: all
  float top_p = 1.0f;        // keep the most probable tokens whose probabilities reach top_p; at least one
  float min_p = 0.0f;        // keep tokens at least min_p times as probable as the best
  float typical_p = 1.0f;    // locally typical sampling; keep tokens of mass typical_p closest to the entropy
  float top_n_sigma = 0.0f;  // keep logits within so many standard deviations of the best one; up to 0: all

  // Exclude top choices (XTC): at random, all tokens that reach a probability but the least probable of them.
  float xtc_probability = 0.0f;  // how probable that is at each position; 0: never
  float xtc_threshold = 0.1f;    // above 0.5 no two tokens reach it

  // Dynamic temperature: the entropy of the tokens left chooses it, from temperature - range, at least 0, to
  // temperature + range.
  float dynatemp_range = 0.0f;     // 0: off
  float dynatemp_exponent = 1.0f;  // the power of the entropy, which is a fraction of the largest possible one

  // Mirostat (Basu et al. 2021): keeps the surprise of the answer's tokens near tau. Replaces all limits above.
  int mirostat = 0;           // 0: off; 1, 2: Mirostat, Mirostat 2.0
  float mirostat_tau = 5.0f;  // in bits
  float mirostat_eta = 0.1f;  // how fast it adapts

  // Penalties. The repetition penalty counts tokens of prompt and answer, the other two those of the answer.
  float repetition_penalty = 1.0f;  // above 1 discourages
  float frequency_penalty = 0.0f;   // subtracted once per occurrence
  float presence_penalty = 0.0f;    // subtracted once
  int repeat_last_n = -1;           // number of recent tokens that the penalties count; -1: all, 0: none

  // DRY ("don't repeat yourself"): a token that would continue a repetition of the last n tokens, n at least
  // dry_allowed_length, loses dry_multiplier * dry_base^(n - dry_allowed_length) of its logit.
  float dry_multiplier = 0.0f;  // 0: off
  float dry_base = 1.75f;
  int dry_allowed_length = 2;
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
  int n = 1;                                // answers to one prompt

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

// A member of SamplingParams that is a number or a switch. Its default is that of the member.
struct SamplingParameter {
  std::string_view name;  // the member's; requests use it
  std::variant<float SamplingParams::*, int SamplingParams::*, bool SamplingParams::*> member;
  double low = 0, high = 0;     // bounds of numbers, both allowed; NaN never is
  std::string_view about;       // what it does, and which value turns it off
  std::string_view flags = {};  // those of `quire run`, separated by commas; empty: it has none
  bool common = false;          // --help shows its flag with those that most people need
  // The member of SamplingDefaults that may replace the default.
  std::variant<std::monostate, std::optional<float> SamplingDefaults::*, std::optional<int> SamplingDefaults::*>
      recommended = {};
};

// The only place that states a range. From these rows come the checks of validate(), the parameters of requests with
// their description in /openapi.json, the flags of `quire run` with their help, and a table in docs/api.md.
inline constexpr SamplingParameter kSamplingParameters[] = {
    {"temperature", &SamplingParams::temperature, 0, 100, "randomness; 0: always the most probable token",
     "--temp,--temperature", true, &SamplingDefaults::temperature},
    {"top_k", &SamplingParams::top_k, -1, kMaxCount, "keep the k most probable tokens; 0 and -1: all", "--top-k", true,
     &SamplingDefaults::top_k},
    {"top_p", &SamplingParams::top_p, 0, 1, "keep the most probable tokens that together reach p; 1: all", "--top-p",
     true, &SamplingDefaults::top_p},
    {"min_p", &SamplingParams::min_p, 0, 1, "keep tokens at least p times as probable as the best; 0: all", "--min-p",
     true, &SamplingDefaults::min_p},
    {"repetition_penalty", &SamplingParams::repetition_penalty, 0.01, 100,
     "above 1 discourages tokens of the prompt and of the answer so far", "--repetition-penalty,--repeat-penalty", true,
     &SamplingDefaults::repetition_penalty},
    {"typical_p", &SamplingParams::typical_p, 0, 1,
     "locally typical sampling: keep the mass p whose surprisal is closest to the entropy; 1: all",
     "--typical-p,--typical", true},
    {"repeat_last_n", &SamplingParams::repeat_last_n, -1, kMaxCount,
     "how many recent tokens the penalties count; -1: all, 0: none", "--repeat-last-n", true},
    {"frequency_penalty", &SamplingParams::frequency_penalty, -2, 2,
     "subtracted from the logit of a token for each of its occurrences in the answer", "--frequency-penalty", true},
    {"presence_penalty", &SamplingParams::presence_penalty, -2, 2,
     "subtracted once from the logit of each token that the answer has", "--presence-penalty", true},
    {"top_n_sigma", &SamplingParams::top_n_sigma, -1, 1000,
     "keep tokens whose logit is within n standard deviations of the best; up to 0: all", "--top-n-sigma,--top-nsigma"},
    {"xtc_probability", &SamplingParams::xtc_probability, 0, 1,
     "XTC: how often to exclude the top choices, all tokens that reach the threshold but the least probable of them; "
     "0: never",
     "--xtc-probability"},
    {"xtc_threshold", &SamplingParams::xtc_threshold, 0, 1,
     "the probability that makes a token a top choice for XTC; above 0.5: never", "--xtc-threshold"},
    {"dynatemp_range", &SamplingParams::dynatemp_range, 0, 100,
     "dynamic temperature: the entropy of the tokens left sets it, from temperature - range to temperature + range; "
     "0: off",
     "--dynatemp-range"},
    {"dynatemp_exponent", &SamplingParams::dynatemp_exponent, 0, 100,
     "the power of the entropy, relative to the largest possible one, that sets the dynamic temperature",
     "--dynatemp-exponent,--dynatemp-exp"},
    {"mirostat", &SamplingParams::mirostat, 0, 2,
     "1: Mirostat, 2: Mirostat 2.0, in place of all limits (top k to dynamic temperature); 0: off", "--mirostat"},
    {"mirostat_tau", &SamplingParams::mirostat_tau, 0, 100, "the surprise of tokens that Mirostat keeps to, in bits",
     "--mirostat-tau,--mirostat-ent"},
    {"mirostat_eta", &SamplingParams::mirostat_eta, 0, 1, "how fast Mirostat adapts", "--mirostat-eta,--mirostat-lr"},
    {"dry_multiplier", &SamplingParams::dry_multiplier, 0, 100,
     "DRY: a token that would continue a repetition of n tokens loses multiplier * base^(n - allowed length) of its "
     "logit; 0: off",
     "--dry-multiplier"},
    {"dry_base", &SamplingParams::dry_base, 1, 100, "by how much DRY's penalty grows with each token of a repetition",
     "--dry-base"},
    {"dry_allowed_length", &SamplingParams::dry_allowed_length, 1, kMaxCount,
     "DRY penalizes repetitions of at least so many tokens", "--dry-allowed-length"},
    {"dry_penalty_last_n", &SamplingParams::dry_penalty_last_n, -1, kMaxCount,
     "how many recent tokens DRY looks at; -1: all, 0: none", "--dry-penalty-last-n"},
    {"min_tokens", &SamplingParams::min_tokens, 0, kMaxCount,
     "no end-of-sequence or stop token is chosen before so many tokens; at most max_tokens"},
    {"ignore_eos", &SamplingParams::ignore_eos, 0, 0, "keep generating after the end-of-sequence token", "--ignore-eos",
     true},
    {"include_stop_str_in_output", &SamplingParams::include_stop_str_in_output, 0, 0,
     "the answer keeps the stop string that ended it"},
    {"skip_special_tokens", &SamplingParams::skip_special_tokens, 0, 0, "false: the text shows special tokens by name"},
    {"n", &SamplingParams::n, 1, kMaxChoices, "answers to one prompt"},
};

// A program with a name that has no row does not compile.
consteval const SamplingParameter& sampling_parameter(std::string_view name) {
  for (const SamplingParameter& parameter : kSamplingParameters) {
    if (parameter.name == name) return parameter;
  }
  throw "no such sampling parameter";
}

// "between 0 and 1", "at least -1"
std::string range_text(const SamplingParameter& parameter);

// Takes over what `model` recommends.
void apply_defaults(SamplingParams& sampling, const SamplingDefaults& model);

// Throws Error (kInvalid) naming the field, its value and the allowed range. NaN is never allowed.
void validate(const SamplingParams& params, int vocab_size);

}  // namespace quire
