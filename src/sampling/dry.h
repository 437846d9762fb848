// DRY, "don't repeat yourself" (p-e-w, text-generation-webui 5677; llama.cpp's parameters): discourages the tokens that
// would continue a repetition.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "sampling/sampler.h"
#include "sampling/stop.h"

namespace quire {

// Texts that no repetition extends over. Prepared once per request.
struct DryBreakers {
  std::vector<StopString> texts;
  std::function<std::string_view(TokenId)> bytes_of;  // the bytes of a token inside a text
};

// The tokens since the last breaker, as a repetition may not be longer. Breakers are found in the text, also where they
// extend over several tokens. A copy is a clone. Time: the bytes of a token times the number of breakers.
class DryRun {
 public:
  // `breakers` must outlive it.
  explicit DryRun(const DryBreakers& breakers) : breakers_(&breakers), matched_(breakers.texts.size(), 0) {}

  void push(TokenId token);
  // Since the token in which the last breaker ended, not counting it.
  size_t length() const { return length_; }
  // Whether a breaker would end in this token, if it came next.
  bool is_ended_by(TokenId token) const;

 private:
  // Whether breaker `index` ends within `bytes`. Updates `matched`, the length of its longest prefix that ends the text.
  bool ends_in(std::string_view bytes, size_t index, size_t& matched) const;

  const DryBreakers* breakers_;
  std::vector<size_t> matched_;  // as in StopMatcher
  size_t length_ = 0;
};

// For each token t, n is the largest number such that the last n tokens, at most row.dry_run->length(), occurred before
// and were followed by t; all within the last dry_penalty_last_n tokens. If n is at least dry_allowed_length, t's logit
// loses dry_multiplier * dry_base^(n - dry_allowed_length), at most 10^30, unless a breaker would end in t. Linear
// time. Token ids as in adjust_logits().
void apply_dry(const SamplingParams& params, const SampleRow& row, SamplerScratch& scratch);

}  // namespace quire
