#include "speculate/lookup/corpus.h"

#include <algorithm>
#include <cassert>
#include <numeric>
#include <utility>

#include "base/error.h"

namespace quire {
namespace {

// Sorts the suffixes of `text` by their first `tokens` tokens (a power of two), equal ones by position. Prefix
// doubling (Manber and Myers, "Suffix arrays", 1990): the rank of 2k tokens is that of the first k, then that of the
// k after them. A suffix that ends is less than one that goes on.
std::vector<uint32_t> sort_suffixes(const TokenIds& text, size_t tokens) {
  const size_t n = text.size();
  std::vector<uint32_t> order(n), rank(n), other(n), starts(n + 1);
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(),
            [&](uint32_t a, uint32_t b) { return std::pair(text[a], a) < std::pair(text[b], b); });
  for (size_t i = 1; i < n; ++i) rank[order[i]] = rank[order[i - 1]] + (text[order[i]] != text[order[i - 1]]);

  for (size_t k = 1; k < tokens && n > 0 && rank[order[n - 1]] < n - 1; k *= 2) {
    // By the second half: first the suffixes without one, then those that begin k before the sorted ones.
    size_t filled = 0;
    for (size_t p = n - std::min(k, n); p < n; ++p) other[filled++] = static_cast<uint32_t>(p);
    for (const uint32_t p : order) {
      if (p >= k) other[filled++] = p - static_cast<uint32_t>(k);
    }
    // Then, by counting, by the first half.
    std::fill(starts.begin(), starts.end(), 0);
    for (const uint32_t r : rank) ++starts[r + 1];
    std::partial_sum(starts.begin(), starts.end(), starts.begin());
    for (const uint32_t p : other) order[starts[rank[p]]++] = p;

    const auto second = [&](uint32_t p) { return p + k < n ? int64_t{rank[p + k]} : -1; };
    other[order[0]] = 0;
    for (size_t i = 1; i < n; ++i) {
      const uint32_t a = order[i - 1], b = order[i];
      other[b] = other[a] + (rank[a] != rank[b] || second(a) != second(b));
    }
    std::swap(rank, other);
  }
  // The second halves put suffixes of equal first tokens in the order of what ends first.
  for (size_t i = 0; i < n;) {
    size_t end = i + 1;
    while (end < n && rank[order[end]] == rank[order[i]]) ++end;
    std::sort(order.begin() + static_cast<ptrdiff_t>(i), order.begin() + static_cast<ptrdiff_t>(end));
    i = end;
  }
  return order;
}

}  // namespace

Corpus::Corpus(TokenIds text) : text_(std::move(text)) {
  if (text_.size() >= size_t{1} << 31) {
    throw invalid("The corpus has {} tokens; at most {} are allowed. Use a smaller file.", text_.size(),
                  (size_t{1} << 31) - 1);
  }
  text_.shrink_to_fit();
  order_ = sort_suffixes(text_, kSorted);
}

size_t Corpus::bytes() const { return text_.capacity() * sizeof(TokenId) + order_.capacity() * sizeof(uint32_t); }

TokenId Corpus::token_at(size_t suffix, size_t length) const {
  const size_t position = order_[suffix] + length;
  return position < text_.size() ? text_[position] : kNoToken;
}

Corpus::Range Corpus::find(std::span<const TokenId> tokens) const {
  // Less than zero: the suffix comes before all that begin with these tokens; zero: it begins with them.
  const auto compare = [&](uint32_t suffix) {
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (suffix + i >= text_.size()) return -1;
      if (text_[suffix + i] != tokens[i]) return text_[suffix + i] < tokens[i] ? -1 : 1;
    }
    return 0;
  };
  const auto begin =
      std::partition_point(order_.begin(), order_.end(), [&](uint32_t suffix) { return compare(suffix) < 0; });
  const auto end = std::partition_point(begin, order_.end(), [&](uint32_t suffix) { return compare(suffix) == 0; });
  return {static_cast<size_t>(begin - order_.begin()), static_cast<size_t>(end - order_.begin())};
}

Corpus::Range Corpus::narrow(Range range, size_t length, TokenId token) const {
  // The end of the text sorts as kNoToken does: before all tokens.
  const auto first = [&](size_t from, auto is_before) {
    size_t size = range.end - from;
    while (size > 0) {
      const size_t half = size / 2;
      if (is_before(token_at(from + half, length))) {
        from += half + 1;
        size -= half + 1;
      } else {
        size = half;
      }
    }
    return from;
  };
  const size_t begin = first(range.begin, [&](TokenId t) { return t < token; });
  return {begin, first(begin, [&](TokenId t) { return t == token; })};
}

size_t Corpus::vote(Range range, size_t length, Votes& votes) const {
  const size_t asked = std::min(range.size(), kVotes);
  std::array<TokenId, kVotes> tokens;
  for (size_t i = 0; i < asked; ++i) tokens[i] = token_at(range.begin + range.size() * i / asked, length);
  // Evenly spaced suffixes are sorted, so equal tokens are neighbours.
  size_t n = 0;
  for (size_t i = 0; i < asked; ++i) {
    if (tokens[i] == kNoToken) continue;
    if (n > 0 && votes[n - 1].token == tokens[i]) {
      ++votes[n - 1].count;
    } else {
      votes[n++] = {tokens[i], 1};
    }
  }
  std::sort(votes.begin(), votes.begin() + static_cast<ptrdiff_t>(n),
            [](const Vote& a, const Vote& b) { return a.count != b.count ? a.count > b.count : a.token < b.token; });
  return n;
}

void Corpus::draft(std::span<const TokenId> context, int min_match, int depth, int breadth, Drafts& out) const {
  assert(min_match >= 1 && depth >= 0 && breadth >= 0);
  out.clear();
  if (depth == 0 || breadth == 0) return;

  // A suffix that occurs has shorter ones that occur, so the longest is found by halving. Before kNoToken none does.
  const auto least = static_cast<size_t>(min_match);
  size_t longest = least - 1, limit = std::min(context.size(), kLongestMatch);
  const auto separator = std::find(context.rbegin(), context.rbegin() + static_cast<ptrdiff_t>(limit), kNoToken);
  limit = static_cast<size_t>(separator - context.rbegin());
  while (longest < limit) {
    const size_t length = (longest + limit + 1) / 2;
    if (find(context.last(length)).size() > 0) {
      longest = length;
    } else {
      limit = length - 1;
    }
  }

  Votes firsts, nexts;
  for (size_t match = longest; match >= least && out.size() < static_cast<size_t>(breadth); --match) {
    const Range matching = find(context.last(match));
    const size_t choices = vote(matching, match, firsts);
    for (size_t i = 0; i < choices && out.size() < static_cast<size_t>(breadth); ++i) {
      if (out.has_first(firsts[i].token)) continue;
      out.start(static_cast<int>(match));
      Range range = matching;
      TokenId token = firsts[i].token;
      for (size_t length = match, pushed = 1;; ++length, ++pushed) {
        out.push(token);
        if (pushed == static_cast<size_t>(depth)) break;
        if (range.size() > 1 && length < kSorted) range = narrow(range, length, token);
        if (length + 1 >= kSorted) range.end = range.begin + 1;  // from here on as the first of them goes on
        if (vote(range, length + 1, nexts) == 0) break;
        token = nexts[0].token;
      }
    }
  }
}

}  // namespace quire
