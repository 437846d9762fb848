#include "cli/verify/logits.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "cli/logit_distance.h"

namespace quire {
namespace {

double margin_of(std::span<const float> logits, TokenId best) {
  double margin = 1e30;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (static_cast<TokenId>(i) != best)
      margin = std::min(margin, double{logits[static_cast<size_t>(best)]} - logits[i]);
  }
  return margin;
}

}  // namespace

Verifier::Verifier(LoadedModel& model, double tolerance)
    : model_(model), sequence_(model), vocab_(static_cast<size_t>(model.target.config.vocab)), tolerance_(tolerance) {}

Comparison Verifier::compare(const Expected& e) {
  Comparison c{.name = e.name, .prompt_tokens = static_cast<int>(e.prompt.size())};
  if (e.prompt.empty() || e.logits.size() != e.prompt.size() * vocab_) {
    throw invalid("{}: {} prompt tokens and {} logits do not fit a vocabulary of {}", e.name, e.prompt.size(),
                  e.logits.size(), vocab_);
  }
  for (const TokenId id : e.prompt) {
    if (id < 0 || id >= model_.target.config.vocab)
      throw invalid("{}: token {} is outside the vocabulary of {}", e.name, id, vocab_);
  }
  if (!e.margins.empty() && e.margins.size() != e.greedy.size())
    throw invalid("{}: {} margins for {} greedy tokens", e.name, e.margins.size(), e.greedy.size());
  sequence_.clear();
  std::vector<float> last;
  const auto chunk = static_cast<size_t>(model_.plan.limits.max_logits);
  for (size_t at = 0; at < e.prompt.size(); at += chunk) {
    const auto ids = std::span(e.prompt).subspan(at, std::min(chunk, e.prompt.size() - at));
    const auto logits = sequence_.append(ids, true);
    for (size_t i = 0; i < ids.size(); ++i)
      add(c, std::span(e.logits).subspan((at + i) * vocab_, vocab_), logits.subspan(i * vocab_, vocab_));
    last.assign(logits.end() - static_cast<ptrdiff_t>(vocab_), logits.end());
  }
  greedy(c, e, std::move(last));
  c.mean_kl /= c.positions;
  c.top1 /= c.positions;
  return c;
}

double Verifier::allowed(const Comparison& c) const { return tolerance_ > 0 ? tolerance_ : 2e-4 + 1e-4 * c.max_logit; }

bool Verifier::passed(const Comparison& c) const {
  // If an expected logit is infinite, so is the allowed difference.
  return std::isfinite(c.max_difference) && c.max_difference <= allowed(c) && c.greedy_equal == c.greedy_compared;
}

void Verifier::add(Comparison& c, std::span<const float> expected, std::span<const float> got) {
  for (size_t i = 0; i < vocab_; ++i) {
    c.max_difference = widest_difference(c.max_difference, expected[i], got[i]);
    c.max_logit = std::max(c.max_logit, std::abs(double{expected[i]}));
  }
  const double kl = kl_divergence(expected, got);
  c.mean_kl += kl;
  c.max_kl = std::max(c.max_kl, kl);
  c.top1 += argmax(expected) == argmax(got);
  ++c.positions;
}

void Verifier::greedy(Comparison& c, const Expected& e, std::vector<float> logits) {
  for (size_t step = 0; step < e.greedy.size(); ++step) {
    if ((step + 1) * vocab_ <= e.step_logits.size())
      add(c, std::span(e.step_logits).subspan(step * vocab_, vocab_), logits);
    const TokenId best = argmax(logits);
    const double margin = e.margins.empty() ? margin_of(logits, best) : e.margins[step];
    const double small = e.margins.empty() ? 2 * std::max(allowed(c), c.max_difference) : 1e-3;
    if (margin < small) return;
    ++c.greedy_compared;
    if (best != e.greedy[step]) return;
    ++c.greedy_equal;
    if (step + 1 == e.greedy.size()) return;
    const auto next = sequence_.append({&best, 1}, false);
    logits.assign(next.begin(), next.end());
  }
}

}  // namespace quire
