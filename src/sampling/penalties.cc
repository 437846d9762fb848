#include "sampling/penalties.h"

#include <algorithm>
#include <cassert>
#include <limits>

#include "base/bits.h"
#include "sampling/dry.h"

namespace quire {
namespace {

void apply_penalties(const SamplingParams& params, const SampleRow& row, SamplerScratch& scratch) {
  const bool repetition = params.repetition_penalty != 1.0f;
  if (!repetition && params.frequency_penalty == 0.0f && params.presence_penalty == 0.0f) return;

  std::span<const TokenId> prompt = row.prompt;
  std::span<const TokenId> generated = row.counted_answer();
  if (params.repeat_last_n >= 0) {
    const auto window = static_cast<size_t>(params.repeat_last_n);
    generated = generated.last(std::min(window, generated.size()));
    prompt = prompt.last(std::min(window - generated.size(), prompt.size()));
  }

  const size_t vocab = row.vocab_size();
  scratch.reserve_counts(vocab);
  const auto note = [&](TokenId token) {
    assert(static_cast<size_t>(token) < vocab);
    if (scratch.seen[static_cast<size_t>(token)]) return;
    scratch.seen[static_cast<size_t>(token)] = 1;
    scratch.distinct.push_back(token);
  };
  for (const TokenId token : generated) {
    if (token < 0) continue;
    note(token);
    ++scratch.occurrences[static_cast<size_t>(token)];
  }
  for (size_t i = 0; repetition && i < prompt.size(); ++i) {
    if (prompt[i] >= 0) note(prompt[i]);
  }

  for (const TokenId token : scratch.distinct) {
    const auto id = static_cast<size_t>(token);
    float& logit = row.logit_of(token);
    const bool acts = row.penalizes(token);
    if (repetition && acts) logit = logit > 0 ? logit / params.repetition_penalty : logit * params.repetition_penalty;
    if (scratch.occurrences[id] > 0 && acts) {
      logit -= params.frequency_penalty * static_cast<float>(scratch.occurrences[id]);
      logit -= params.presence_penalty;
    }
    scratch.occurrences[id] = 0;
    scratch.seen[id] = 0;
  }
  scratch.distinct.clear();
}

constexpr float kNever = -std::numeric_limits<float>::infinity();

void keep_allowed(std::span<const TokenId> allowed, const SampleRow& row, SamplerScratch& scratch) {
  if (allowed.empty()) return;
  if (scratch.scores.size() < allowed.size()) scratch.scores.resize(allowed.size());
  for (size_t i = 0; i < allowed.size(); ++i) scratch.scores[i] = row.logit_of(allowed[i]);
  std::ranges::fill(row.logits, kNever);
  for (size_t i = 0; i < allowed.size(); ++i) row.logit_of(allowed[i]) = scratch.scores[i];
}

void apply_mask(std::span<const uint32_t> mask, const SampleRow& row) {
  const std::span<float> logits = row.logits;
  if (!row.ids.empty() && !mask.empty()) {
    for (size_t i = 0; i < logits.size(); ++i) {
      if (!has_bit(mask, static_cast<size_t>(row.ids[i]))) logits[i] = kNever;
    }
    return;
  }
  for (size_t word = 0; word < mask.size(); ++word) {
    if (mask[word] == ~0u) continue;
    const auto block = logits.subspan(32 * word, std::min<size_t>(32, logits.size() - 32 * word));
    if (mask[word] == 0) {
      std::fill(block.begin(), block.end(), kNever);
      continue;
    }
    for (size_t i = 0; i < block.size(); ++i) {
      if (!(mask[word] >> i & 1)) block[i] = kNever;
    }
  }
}

}  // namespace

bool has_penalties(const SamplingParams& params) {
  return params.repetition_penalty != 1.0f || params.frequency_penalty != 0.0f || params.presence_penalty != 0.0f ||
         params.dry_multiplier != 0.0f;
}

bool ends_before_last(std::span<const TokenId> generated, std::span<const TokenId> run) {
  const auto before = run.first(run.size() - 1);
  return before.size() <= generated.size() && std::ranges::equal(before, generated.last(before.size()));
}

void adjust_logits(const SamplingParams& params, const SampleRow& row, SamplerScratch& scratch) {
  for (const auto& [token, bias] : params.logit_bias) row.logit_of(token) += bias;
  if (row.penalized) {
    apply_penalties(params, row, scratch);
    apply_dry(params, row, scratch);
  }
  keep_allowed(params.allowed_token_ids, row, scratch);
  apply_mask(row.mask, row);
  for (const TokenId token : row.banned) row.logit_of(token) = kNever;
  for (const std::span<const TokenId> run : row.banned_runs) {
    if (ends_before_last(row.generated, run)) row.logit_of(run.back()) = kNever;
  }
}

}  // namespace quire
