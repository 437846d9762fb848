#include "quire/sampling_params.h"

#include <cmath>
#include <limits>
#include <string_view>

#include "base/error.h"

namespace quire {
namespace {

// Also throws for NaN.
template <class T>
void require_range(std::string_view field, T value, T low, T high) {
  if (value >= low && value <= high) return;
  throw invalid("{} must be between {} and {}, not {}", field, low, high, value);
}

void require_token(std::string_view field, TokenId token, int vocab_size) {
  if (token >= 0 && token < vocab_size) return;
  throw invalid("{} contains token {}, but the model's tokens are 0 to {}", field, token, vocab_size - 1);
}

void require_texts(std::string_view field, const std::vector<std::string>& texts, size_t at_most, size_t most_bytes,
                   std::string_view why_not_empty) {
  if (texts.size() > at_most) throw invalid("{} has {} strings; at most {} are allowed", field, texts.size(), at_most);
  for (size_t i = 0; i < texts.size(); ++i) {
    if (texts[i].empty()) throw invalid("{}[{}] is empty: {}", field, i, why_not_empty);
    if (texts[i].size() > most_bytes) {
      throw invalid("{}[{}] has {} bytes; at most {} are allowed", field, i, texts[i].size(), most_bytes);
    }
  }
}

}  // namespace

void validate(const SamplingParams& p, int vocab_size) {
  constexpr int kMaxInt = std::numeric_limits<int>::max();
  if (!(p.temperature >= 0.0f) || std::isinf(p.temperature)) {
    throw invalid("temperature must be a finite number of at least 0 (0 is greedy), not {}", p.temperature);
  }
  if (p.top_k < -1) throw invalid("top_k must be at least 1, or 0 or -1 for all tokens, not {}", p.top_k);
  require_range("top_p", p.top_p, 0.0f, 1.0f);
  require_range("min_p", p.min_p, 0.0f, 1.0f);
  require_range("typical_p", p.typical_p, 0.0f, 1.0f);
  require_range("top_n_sigma", p.top_n_sigma, -1.0f, 1000.0f);
  require_range("xtc_probability", p.xtc_probability, 0.0f, 1.0f);
  require_range("xtc_threshold", p.xtc_threshold, 0.0f, 1.0f);
  require_range("dynatemp_range", p.dynatemp_range, 0.0f, 100.0f);
  require_range("dynatemp_exponent", p.dynatemp_exponent, 0.0f, 100.0f);
  require_range("mirostat", p.mirostat, 0, 2);
  require_range("mirostat_tau", p.mirostat_tau, 0.0f, 100.0f);
  require_range("mirostat_eta", p.mirostat_eta, 0.0f, 1.0f);
  require_range("repetition_penalty", p.repetition_penalty, 0.01f, 100.0f);
  require_range("frequency_penalty", p.frequency_penalty, -2.0f, 2.0f);
  require_range("presence_penalty", p.presence_penalty, -2.0f, 2.0f);
  if (p.repeat_last_n < -1) {
    throw invalid("repeat_last_n must be a number of tokens from 0, or -1 for all, not {}", p.repeat_last_n);
  }
  require_range("dry_multiplier", p.dry_multiplier, 0.0f, 100.0f);
  require_range("dry_base", p.dry_base, 1.0f, 100.0f);
  require_range("dry_allowed_length", p.dry_allowed_length, 1, kMaxInt);
  if (p.dry_penalty_last_n < -1) {
    throw invalid("dry_penalty_last_n must be a number of tokens from 0, or -1 for all, not {}", p.dry_penalty_last_n);
  }
  require_texts("dry_sequence_breakers", p.dry_sequence_breakers, kMaxBreakers, kMaxBreakerBytes,
                "it would end every repetition");
  if (p.logit_bias.size() > static_cast<size_t>(vocab_size)) {
    throw invalid("logit_bias has {} entries, but the model has only {} tokens", p.logit_bias.size(), vocab_size);
  }
  for (const auto& [token, bias] : p.logit_bias) {
    require_token("logit_bias", token, vocab_size);
    if ((bias >= -100.0f && bias <= 100.0f) || bias == -std::numeric_limits<float>::infinity()) continue;
    throw invalid("logit_bias of token {} must be between -100 and 100, or -infinity to ban it, not {}", token, bias);
  }
  if (p.allowed_token_ids.size() > static_cast<size_t>(vocab_size)) {
    throw invalid("allowed_token_ids has {} entries, but the model has only {} tokens", p.allowed_token_ids.size(),
                  vocab_size);
  }
  for (const TokenId token : p.allowed_token_ids) require_token("allowed_token_ids", token, vocab_size);
  require_texts("bad_words", p.bad_words, kMaxBadWords, kMaxStopBytes, "it would ban every token");
  if (p.max_tokens) require_range("max_tokens", *p.max_tokens, p.prompt_logprobs ? 0 : 1, kMaxInt);
  require_range("min_tokens", p.min_tokens, 0, p.max_tokens.value_or(kMaxInt));
  require_texts("stop", p.stop, kMaxStopStrings, kMaxStopBytes, "it would end every answer immediately");
  for (const TokenId token : p.stop_token_ids) require_token("stop_token_ids", token, vocab_size);
  if (p.logprobs) require_range("logprobs", *p.logprobs, 0, kMaxLogprobs);
  if (p.prompt_logprobs) require_range("prompt_logprobs", *p.prompt_logprobs, 0, kMaxLogprobs);
  require_range("n", p.n, 1, kMaxChoices);
}

}  // namespace quire
