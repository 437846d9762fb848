#include "sampling/dry.h"

#include <algorithm>
#include <cassert>

namespace quire {
namespace {

// Keeps logits finite: a penalty is not a ban.
constexpr double kMostPenalty = 1e30;

double power(double base, size_t exponent) {
  double result = 1;
  for (; exponent > 0; exponent /= 2, base *= base) {
    if (exponent % 2 == 1) result *= base;
  }
  return result;
}

// The last `count` tokens of prompt and answer, the last one first.
void copy_backwards(const SampleRow& row, size_t count, std::vector<TokenId>& to) {
  const std::span<const TokenId> answer = row.counted_answer();
  const size_t of_answer = std::min(count, answer.size());
  to.resize(count);
  const auto next = std::reverse_copy(answer.end() - static_cast<std::ptrdiff_t>(of_answer), answer.end(), to.begin());
  std::reverse_copy(row.prompt.end() - static_cast<std::ptrdiff_t>(count - of_answer), row.prompt.end(), next);
}

// lengths[i]: how many tokens from i on equal those from 0 on (the Z algorithm).
void find_repetitions(std::span<const TokenId> tokens, std::vector<uint32_t>& lengths) {
  lengths.assign(tokens.size(), 0);
  size_t begin = 0, end = 0;  // the known repetition that reaches furthest
  for (size_t i = 1; i < tokens.size(); ++i) {
    size_t length = i < end ? std::min<size_t>(end - i, lengths[i - begin]) : 0;
    while (i + length < tokens.size() && tokens[length] == tokens[i + length]) ++length;
    lengths[i] = static_cast<uint32_t>(length);
    if (i + length > end) begin = i, end = i + length;
  }
}

}  // namespace

bool DryRun::ends_in(std::string_view bytes, size_t index, size_t& matched) const {
  const auto& [text, border] = breakers_->texts[index];
  bool ends = false;
  for (const char byte : bytes) {
    if (matched == text.size()) matched = border[matched - 1];
    while (matched > 0 && text[matched] != byte) matched = border[matched - 1];
    if (text[matched] == byte) ++matched;
    ends |= matched == text.size();
  }
  return ends;
}

void DryRun::push(TokenId token) {
  const std::string_view bytes = breakers_->bytes_of(token);
  bool ends = false;
  for (size_t i = 0; i < matched_.size(); ++i) ends |= ends_in(bytes, i, matched_[i]);
  length_ = ends ? 0 : length_ + 1;
}

bool DryRun::is_ended_by(TokenId token) const {
  const std::string_view bytes = breakers_->bytes_of(token);
  for (size_t i = 0; i < matched_.size(); ++i) {
    size_t matched = matched_[i];
    if (ends_in(bytes, i, matched)) return true;
  }
  return false;
}

void apply_dry(const SamplingParams& params, const SampleRow& row, SamplerScratch& scratch) {
  if (params.dry_multiplier == 0.0f) return;
  size_t window = row.prompt.size() + row.generated.size();
  if (params.dry_penalty_last_n >= 0) window = std::min(window, static_cast<size_t>(params.dry_penalty_last_n));
  const auto allowed = static_cast<size_t>(params.dry_allowed_length);
  const size_t longest = row.dry_run ? std::min(window, row.dry_run->length()) : window;
  if (longest < allowed) return;

  copy_backwards(row, window, scratch.recent);
  find_repetitions(scratch.recent, scratch.repetitions);
  scratch.reserve_counts(row.vocab_size());
  for (size_t i = 1; i < window; ++i) {
    const size_t length = std::min<size_t>(scratch.repetitions[i], longest);
    const TokenId follower = scratch.recent[i - 1];
    if (length < allowed || follower < 0) continue;
    uint32_t& most = scratch.occurrences[static_cast<size_t>(follower)];
    if (most == 0) scratch.distinct.push_back(follower);
    most = std::max(most, static_cast<uint32_t>(length));
  }
  for (const TokenId token : scratch.distinct) {
    uint32_t& length = scratch.occurrences[static_cast<size_t>(token)];
    const double penalty = params.dry_multiplier * power(params.dry_base, length - allowed);
    if (row.penalizes(token) && (!row.dry_run || !row.dry_run->is_ended_by(token)))
      row.logit_of(token) -= static_cast<float>(std::min(penalty, kMostPenalty));
    length = 0;
  }
  scratch.distinct.clear();
}

}  // namespace quire
