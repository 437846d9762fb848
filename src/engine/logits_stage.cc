#include "engine/logits_stage.h"

#include <algorithm>

namespace quire {
namespace {

// If a thought must end here, narrows `mask` to the token that ends it. Returns whether it did.
bool close_thought(ThoughtWatch& thoughts, std::span<uint32_t> mask) {
  const std::optional<TokenId> token = thoughts.forced();
  if (!token) return false;
  const auto word = static_cast<size_t>(*token) / 32;
  const uint32_t bit = 1u << (*token % 32);
  if ((mask[word] & bit) == 0) {
    thoughts.skip();
    return false;
  }
  std::ranges::fill(mask, 0u);
  mask[word] = bit;
  return true;
}

std::optional<Sampled> next_token(Sequence& s, std::span<float> logits, SamplerScratch& scratch) {
  if (s.request->max_new_tokens == 0) return std::nullopt;
  SampleRow row = s.sample_row(logits, s.choice);
  scratch.mask.resize((logits.size() + 31) / 32);
  if (!s.matcher && s.thoughts) std::ranges::fill(scratch.mask, ~0u);
  if (s.matcher) {
    s.matcher->fill_mask(scratch.mask);
    row.mask = scratch.mask;
  }
  if (s.thoughts && close_thought(*s.thoughts, scratch.mask)) row.mask = scratch.mask;
  return quire::sample(s.request->sampling, row, scratch);
}

}  // namespace

LogitsStage::LogitsStage(Team& team, int vocab)
    : team_(team), vocab_(static_cast<size_t>(vocab)), scratch_(static_cast<size_t>(team.size())) {}

std::optional<Sampled> LogitsStage::sample_choice(size_t i, Sequence& choice, std::span<const float> logits) {
  const auto row = logits.subspan(i * vocab_, vocab_);
  copy_.assign(row.begin(), row.end());
  return next_token(choice, copy_, scratch_[0]);
}

void LogitsStage::sample(std::span<float> logits) {
  team_.for_tiles(static_cast<int>(rows_.size()), [&](int tile, int thread) {
    const auto i = static_cast<size_t>(tile);
    Row& row = rows_[i];
    Sequence& s = *row.sequence;
    if (s.ended()) return;
    const auto row_logits = logits.subspan(i * vocab_, vocab_);
    try {
      if (row.samples) {
        row.sampled = next_token(s, row_logits, scratch_[static_cast<size_t>(thread)]);
      } else {
        row.sampled = describe_token(row_logits, s.tokens[static_cast<size_t>(row.position) + 1],
                                     *s.request->sampling.prompt_logprobs);
      }
    } catch (...) {
      row.failure = std::current_exception();
    }
  });
}

}  // namespace quire
