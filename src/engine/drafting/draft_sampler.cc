#include "engine/drafting/draft_sampler.h"

#include <algorithm>
#include <cassert>
#include <limits>
#include <utility>

#include "sampling/mirostat.h"
#include "speculate/rejection.h"

namespace quire {
namespace {

// Mirostat's cut depends on earlier draws, so it has no weights to compare.
bool draws_by_weights(const SamplingParams& p) { return p.temperature > 0 && !uses_mirostat(p); }

// What shapes the request's distribution besides its context. The rule holds for any distribution of drafts; one like the
// target's is accepted most often.
void copy_shape(const SamplingParams& p, SamplingParams& to) {
  to.temperature = p.temperature;
  to.top_k = p.top_k;
  to.top_p = p.top_p;
  to.min_p = p.min_p;
  to.typical_p = p.typical_p;
  to.top_n_sigma = p.top_n_sigma;
  to.dynatemp_range = p.dynatemp_range;
  to.dynatemp_exponent = p.dynatemp_exponent;
}

}  // namespace

DraftSampler::DraftSampler(Team& team, int vocab, int most)
    : team_(team),
      vocab_(static_cast<size_t>(vocab)),
      most_(most),
      memory_(static_cast<size_t>(most) * vocab_ * sizeof(float)),
      threads_(static_cast<size_t>(team.size())),
      failures_(static_cast<size_t>(team.size())) {}

size_t DraftSampler::memory_bytes(int vocab, int most, int threads) {
  return static_cast<size_t>(vocab) *
         (static_cast<size_t>(most) * sizeof(float) + static_cast<size_t>(threads) * SamplerScratch::kBytesPerToken);
}

void DraftSampler::begin(std::span<const DraftTask> tasks) {
  tasks_ = tasks;
  used_ = 0;
  for (const DraftTask& task : tasks) task.sequence->draft_weights.clear();
}

void DraftSampler::pick(std::span<float> logits, std::span<const DraftRow> rows, std::span<const TokenId> ids,
                        std::span<TokenId> out) {
  const size_t cols = logits.size() / rows.size();
  assert(logits.size() == cols * rows.size() && out.size() == rows.size() && (ids.empty() || ids.size() == cols));
  memory_of_.assign(rows.size(), {});
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!rows[i].wanted) continue;
    Sequence& s = *tasks_[rows[i].task].sequence;
    if (!draws_by_weights(s.request->sampling)) continue;
    assert(std::cmp_equal(s.draft_weights.size(), rows[i].depth));
    s.draft_weights.emplace_back();
    if (used_ == most_) continue;  // a draft that is certain
    memory_of_[i] = {memory_.as<float>() + static_cast<size_t>(used_++) * vocab_, vocab_};
  }
  std::ranges::fill(failures_, nullptr);
  team_.for_tiles(static_cast<int>(rows.size()), [&](int tile, int thread) {
    const auto i = static_cast<size_t>(tile), t = static_cast<size_t>(thread);
    if (!rows[i].wanted) return;
    const auto row = logits.subspan(i * cols, cols);
    try {
      out[i] = memory_of_[i].empty() ? best_token(row, ids) : draw(row, rows[i], ids, memory_of_[i], threads_[t]);
    } catch (...) {
      failures_[t] = std::current_exception();
    }
  });
  for (const std::exception_ptr& failure : failures_) {
    if (failure) std::rethrow_exception(failure);
  }
}

TokenId DraftSampler::draw(std::span<const float> logits, const DraftRow& row, std::span<const TokenId> ids,
                           std::span<float> memory, Thread& thread) {
  if (ids.empty()) {
    std::ranges::copy(logits, memory.begin());
  } else {
    std::ranges::fill(memory, -std::numeric_limits<float>::infinity());
    for (size_t i = 0; i < ids.size(); ++i) memory[static_cast<size_t>(ids[i])] = logits[i];
  }
  Sequence& s = *tasks_[row.task].sequence;
  const SamplingParams& params = s.request->sampling;
  const uint64_t position = s.tokens.size() + static_cast<uint64_t>(row.depth);
  copy_shape(params, thread.shape);
  const SampleRow sampled{memory, {}, {}, {}, position};
  const TokenWeights drawn_from = weigh_tokens(thread.shape, sampled, thread.scratch);
  std::ranges::copy(drawn_from.weights, memory.begin());
  TokenWeights& kept = s.draft_weights[static_cast<size_t>(row.depth)];
  kept = {memory, drawn_from.total};
  return draw_draft(kept, {params.seed, static_cast<uint32_t>(s.choice), position});
}

}  // namespace quire
