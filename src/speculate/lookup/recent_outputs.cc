#include "speculate/lookup/recent_outputs.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <numeric>

namespace quire {

// Positions begin at 1: 0 in a chain is its end.
AnswerRing::AnswerRing(size_t limit, int min_match)
    : min_match_(static_cast<size_t>(min_match)),
      ring_(limit),
      begin_(1),
      end_(1),
      latest_(std::bit_ceil(limit), 0),
      previous_(limit, 0) {
  assert(limit >= 2 && min_match >= 1 && min_match_ <= kLongestMatch);
}

size_t AnswerRing::slot_of(std::span<const TokenId> tokens) const {
  uint64_t hash = 0;
  for (const TokenId token : tokens) hash = (hash ^ static_cast<uint32_t>(token)) * 0x9E3779B97F4A7C15;
  return (hash >> 32) & (latest_.size() - 1);
}

void AnswerRing::add(std::span<const TokenId> answer) {
  if (answer.size() + 1 > ring_.size()) answer = answer.last(ring_.size() - 1);
  if (answer.empty()) return;
  while (size() + answer.size() + 1 > ring_.size()) {
    while (at(begin_) != kNoToken) ++begin_;
    ++begin_;
  }
  for (size_t i = 0; i < answer.size(); ++i) {
    assert(answer[i] != kNoToken);
    ring_[end_++ % ring_.size()] = answer[i];
    if (i + 1 < min_match_ || i + 1 == answer.size()) continue;  // nothing follows the last token
    Position& latest = latest_[slot_of(answer.subspan(i + 1 - min_match_, min_match_))];
    previous_[end_ % ring_.size()] = latest;
    latest = end_;
  }
  ring_[end_++ % ring_.size()] = kNoToken;
}

size_t AnswerRing::match_length(Position end, std::span<const TokenId> context) const {
  const size_t most = std::min({kLongestMatch, context.size(), static_cast<size_t>(end - begin_)});
  size_t length = 0;
  while (length < most && at(end - length - 1) == context[context.size() - length - 1] &&
         context[context.size() - length - 1] != kNoToken) {
    ++length;
  }
  return length;
}

void AnswerRing::draft(std::span<const TokenId> context, int depth, int breadth, Drafts& out) const {
  assert(depth >= 0 && breadth >= 0);
  out.clear();
  if (depth == 0 || context.size() < min_match_) return;
  const Position newest = latest_[slot_of(context.last(min_match_))];
  // The best match that is followed by a token that no draft begins with yet; a pass for each draft, as they are few.
  while (out.size() < static_cast<size_t>(breadth)) {
    Match best{0, 0};
    int compared = 0;
    for (Position end = newest; end > begin_ && compared < kOccurrences; ++compared) {
      const size_t length = match_length(end, context);
      if (length >= min_match_ && length > best.length && !out.has_first(at(end))) best = {length, end};
      const Position before = previous_[end % ring_.size()];
      end = before;
    }
    if (best.length == 0) return;
    out.start(static_cast<int>(best.length));
    for (Position p = best.end; p < best.end + static_cast<Position>(depth) && at(p) != kNoToken; ++p) out.push(at(p));
  }
}

size_t AnswerRing::bytes() const {
  return ring_.capacity() * sizeof(TokenId) + (latest_.capacity() + previous_.capacity()) * sizeof(Position);
}

RecentOutputs::RecentOutputs(size_t tokens_per_tenant, size_t tenants, int min_match)
    : tokens_(tokens_per_tenant), limit_(tenants), min_match_(min_match) {
  assert(tenants >= 1);
}

AnswerRing* RecentOutputs::find(std::string_view tenant) {
  const auto found =
      std::find_if(rings_.begin(), rings_.end(), [&](const Tenant& known) { return known.name == tenant; });
  if (found == rings_.end()) return nullptr;
  rings_.splice(rings_.begin(), rings_, found);
  return &found->ring;
}

void RecentOutputs::add(std::string_view tenant, std::span<const TokenId> answer) {
  AnswerRing* ring = find(tenant);
  if (!ring) {
    if (rings_.size() == limit_) rings_.pop_back();
    rings_.push_front({std::string(tenant), AnswerRing(tokens_, min_match_)});
    ring = &rings_.front().ring;
  }
  ring->add(answer);
}

void RecentOutputs::draft(std::string_view tenant, std::span<const TokenId> context, int depth, int breadth,
                          Drafts& out) {
  out.clear();
  if (const AnswerRing* ring = find(tenant)) ring->draft(context, depth, breadth, out);
}

size_t RecentOutputs::bytes() const {
  return std::accumulate(rings_.begin(), rings_.end(), size_t{0},
                         [](size_t sum, const Tenant& tenant) { return sum + tenant.ring.bytes(); });
}

}  // namespace quire
