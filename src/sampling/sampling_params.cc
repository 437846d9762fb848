#include "quire/sampling_params.h"

#include <fmt/format.h>

#include <limits>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

#include "base/error.h"

namespace quire {
namespace {

template <class Member>
using MemberType = std::remove_reference_t<decltype(std::declval<SamplingParams&>().*std::declval<Member>())>;

// Also throws for NaN. A float is compared with the float that is closest to the bound, as 0.01 has none of its own.
void require_range(const SamplingParameter& parameter, const SamplingParams& params) {
  std::visit(
      [&](auto member) {
        const auto value = params.*member;
        using Value = MemberType<decltype(member)>;
        if constexpr (!std::is_same_v<Value, bool>) {
          if (value >= static_cast<Value>(parameter.low) && value <= static_cast<Value>(parameter.high)) return;
          throw invalid("{} must be {}, not {} ({})", parameter.name, range_text(parameter), value, parameter.about);
        }
      },
      parameter.member);
}

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

std::string range_text(const SamplingParameter& p) {
  return p.high == kMaxCount ? fmt::format("at least {}", p.low) : fmt::format("between {} and {}", p.low, p.high);
}

void apply_defaults(SamplingParams& sampling, const SamplingDefaults& model) {
  for (const SamplingParameter& parameter : kSamplingParameters) {
    std::visit(
        [&](auto member, auto recommended) {
          if constexpr (std::is_same_v<std::optional<MemberType<decltype(member)>> SamplingDefaults::*,
                                       decltype(recommended)>) {
            sampling.*member = (model.*recommended).value_or(sampling.*member);
          }
        },
        parameter.member, parameter.recommended);
  }
}

void validate(const SamplingParams& p, int vocab_size) {
  for (const SamplingParameter& parameter : kSamplingParameters) require_range(parameter, p);
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
  if (p.max_tokens) require_range("max_tokens", *p.max_tokens, p.prompt_logprobs ? 0 : 1, kMaxCount);
  require_range("min_tokens", p.min_tokens, 0, p.max_tokens.value_or(kMaxCount));
  require_texts("stop", p.stop, kMaxStopStrings, kMaxStopBytes, "it would end every answer immediately");
  for (const TokenId token : p.stop_token_ids) require_token("stop_token_ids", token, vocab_size);
  if (p.logprobs) require_range("logprobs", *p.logprobs, 0, kMaxLogprobs);
  if (p.prompt_logprobs) require_range("prompt_logprobs", *p.prompt_logprobs, 0, kMaxLogprobs);
}

}  // namespace quire
