#include "sampling/penalties.h"

#include <algorithm>
#include <cassert>
#include <limits>

namespace quire {
namespace {

void apply_penalties(const SamplingParams& params, const SampleRow& row, SamplerScratch& scratch) {
  const bool repetition = params.repetition_penalty != 1.0f;
  if (!repetition && params.frequency_penalty == 0.0f && params.presence_penalty == 0.0f) return;

  std::span<const TokenId> prompt = row.prompt;
  std::span<const TokenId> generated = row.generated;
  if (params.repeat_last_n >= 0) {
    const auto window = static_cast<size_t>(params.repeat_last_n);
    generated = generated.last(std::min(window, generated.size()));
    prompt = prompt.last(std::min(window - generated.size(), prompt.size()));
  }

  const size_t vocab = row.logits.size();
  if (scratch.seen.size() < vocab) {
    scratch.distinct.reserve(vocab);
    scratch.occurrences.resize(vocab, 0);
    scratch.seen.resize(vocab, 0);
  }
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
    float& logit = row.logits[id];
    if (repetition) logit = logit > 0 ? logit / params.repetition_penalty : logit * params.repetition_penalty;
    if (scratch.occurrences[id] > 0) {
      logit -= params.frequency_penalty * static_cast<float>(scratch.occurrences[id]);
      logit -= params.presence_penalty;
    }
    scratch.occurrences[id] = 0;
    scratch.seen[id] = 0;
  }
  scratch.distinct.clear();
}

}  // namespace

void adjust_logits(const SamplingParams& params, const SampleRow& row, SamplerScratch& scratch) {
  for (const auto& [token, bias] : params.logit_bias) {
    assert(token >= 0 && static_cast<size_t>(token) < row.logits.size());
    row.logits[static_cast<size_t>(token)] += bias;
  }
  apply_penalties(params, row, scratch);
  for (const TokenId token : row.banned) {
    assert(token >= 0 && static_cast<size_t>(token) < row.logits.size());
    row.logits[static_cast<size_t>(token)] = -std::numeric_limits<float>::infinity();
  }
}

}  // namespace quire
