#include "base/text/nearest.h"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace quire {
namespace {

constexpr size_t kLongestName = 64;  // longer words are not typos of a name

// Damerau-Levenshtein distance, restricted to swaps of neighbours.
size_t edits(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

}  // namespace

std::string nearest(std::string_view word, std::span<const std::string> candidates) {
  if (word.empty() || word.size() > kLongestName) return {};
  const std::string* best = nullptr;
  size_t fewest = std::max<size_t>(1, word.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    if (candidate.size() > kLongestName) continue;
    const size_t count = edits(word, candidate);
    if (count >= fewest) continue;
    fewest = count;
    best = &candidate;
  }
  if (best) return *best;
  const auto begins = [&](const std::string& candidate) { return word.size() >= 3 && candidate.starts_with(word); };
  const auto found = std::ranges::find_if(candidates, begins);
  return found == candidates.end() ? std::string() : *found;
}

std::string did_you_mean(std::string_view word, std::span<const std::string> candidates) {
  const std::string name = nearest(word, candidates);
  return name.empty() ? "" : " Did you mean " + name + "?";
}

}  // namespace quire
