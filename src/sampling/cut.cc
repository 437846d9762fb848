#include "sampling/cut.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstdint>
#include <limits>

#include "sampling/lanes.h"
#include "sampling/softmax.h"

namespace quire {
namespace {

// With this many buckets of equal width, one pass leaves a few hundred of 262,144 tokens to examine. More buckets (16
// bytes each) would not fit the first-level cache.
constexpr size_t kBuckets = 1024;

constexpr float kLowest = -std::numeric_limits<float>::infinity();

using Candidate = SamplerScratch::Candidate;

bool ranks_before(const Candidate& a, const Candidate& b) {
  return a.score > b.score || (a.score == b.score && a.id < b.id);
}

// The best score among the counting tokens of each block.
void find_block_best(std::span<const float> scores, std::span<const float> weights, std::vector<float>& block_best) {
  const Floats none = all_lanes(kLowest);
  block_best.clear();
  for (size_t first = 0; first < scores.size(); first += kWeightBlock) {
    Floats best = none;
    for_each_four(std::min(kWeightBlock, scores.size() - first), [&](size_t i, auto n) {
      const Floats score = load(&weights[first + i], n) > 0.0f ? load(&scores[first + i], n) : none;
      best = score > best ? score : best;
    });
    block_best.push_back(std::max(std::max(best[0], best[1]), std::max(best[2], best[3])));
  }
}

// The counting tokens that score at least `floor`.
std::span<Candidate> gather(std::span<const float> scores, std::span<const float> weights, float floor,
                            SamplerScratch& scratch) {
  std::vector<Candidate>& out = scratch.candidates;
  out.resize(scores.size() + 1);  // one spare: each token is written before it is known to belong
  size_t found = 0;
  for (size_t b = 0; b < scratch.block_best.size(); ++b) {
    if (!(scratch.block_best[b] >= floor)) continue;
    const size_t first = b * kWeightBlock;
    for_each_four(std::min(kWeightBlock, scores.size() - first), [&](size_t i, auto n) {
      i += first;
      using Halves = std::array<uint64_t, 2>;
      const auto hits = std::bit_cast<Halves>((load(&scores[i], n) >= floor) & (load(&weights[i], n) > 0.0f));
      if ((hits[0] | hits[1]) == 0) return;
      for (size_t j = i; j < i + n; ++j) {
        out[found] = {scores[j], static_cast<TokenId>(j)};
        found += static_cast<size_t>(static_cast<int>(weights[j] > 0) & static_cast<int>(scores[j] >= floor));
      }
    });
  }
  return std::span(out).first(found);
}

}  // namespace

Cut find_cut(std::span<const float> scores, std::span<const float> weights, CutLimit limit, SamplerScratch& scratch) {
  assert(scores.size() == weights.size() && limit.count > 0);
  const auto weight = [&](const Candidate& c) { return static_cast<double>(weights[static_cast<size_t>(c.id)]); };
  const auto sum = [&](std::span<const Candidate> some) {
    double total = 0;
    for (const Candidate& c : some) total += weight(c);
    return total;
  };

  // The tokens that beat the best token of an eighth of the blocks are about 1% of the vocabulary and nearly always
  // enough. (With fewer blocks, padding at the end of a vocabulary would make the bar useless.)
  find_block_best(scores, weights, scratch.block_best);
  std::vector<float>& bars = scratch.bars;
  bars.clear();
  for (const float best : scratch.block_best) {
    if (best > kLowest) bars.push_back(best);
  }
  assert(!bars.empty() && "all weights are 0");
  const auto bar = bars.begin() + static_cast<std::ptrdiff_t>(bars.size() / 8);
  std::nth_element(bars.begin(), bar, bars.end());
  std::span<Candidate> candidates = gather(scores, weights, *bar, scratch);
  if (candidates.size() < limit.count && sum(candidates) < limit.mass) {
    candidates = gather(scores, weights, kLowest, scratch);
  }
  limit.count = std::min(limit.count, candidates.size());

  // Find the bucket of the cut. Rounding is monotonic, so a better score is never in a later bucket.
  float best = candidates[0].score;
  float worst = best;
  for (const Candidate& c : candidates) {
    best = best > c.score ? best : c.score;
    worst = worst < c.score ? worst : c.score;
  }
  const double range = static_cast<double>(best) - static_cast<double>(worst);
  const double scale = range > 0 ? kBuckets / range : 0;
  const auto bucket_of = [&](const Candidate& c) {
    return std::min(kBuckets - 1,
                    static_cast<size_t>((static_cast<double>(best) - static_cast<double>(c.score)) * scale));
  };
  scratch.buckets.assign(kBuckets, {0, 0});
  for (const Candidate& c : candidates) {
    SamplerScratch::Bucket& bucket = scratch.buckets[bucket_of(c)];
    bucket.mass += weight(c);
    ++bucket.count;
  }
  size_t count = 0;  // tokens known to stay
  double mass = 0;
  const auto enough = [&](size_t more_count, double more_mass) {
    return count + more_count >= limit.count || mass + more_mass >= limit.mass;
  };
  size_t cut_bucket = 0;
  while (cut_bucket + 1 < kBuckets && !enough(scratch.buckets[cut_bucket].count, scratch.buckets[cut_bucket].mass)) {
    count += scratch.buckets[cut_bucket].count;
    mass += scratch.buckets[cut_bucket].mass;
    ++cut_bucket;
  }
  const auto end = std::remove_if(candidates.begin(), candidates.end(),
                                  [&](const Candidate& c) { return bucket_of(c) != cut_bucket; });
  candidates = candidates.first(static_cast<size_t>(end - candidates.begin()));

  // Find the cut in the bucket: halve it until one token is left.
  while (candidates.size() > 1) {
    const size_t half = candidates.size() / 2;
    std::nth_element(candidates.begin(), candidates.begin() + static_cast<std::ptrdiff_t>(half), candidates.end(),
                     ranks_before);
    const double half_mass = sum(candidates.first(half));
    if (enough(half, half_mass)) {
      candidates = candidates.first(half);
    } else {
      count += half;
      mass += half_mass;
      candidates = candidates.subspan(half);
    }
  }
  return {candidates[0].score, candidates[0].id};
}

void apply_cut(Cut cut, std::span<const float> scores, std::span<float> weights) {
  // Tokens up to the cut's id stay if they score as much; later ones only if they score more.
  const size_t split = static_cast<size_t>(cut.id) + 1;
  drop_below(scores.first(split), cut.score, weights.first(split));
  const float higher = std::nextafter(cut.score, std::numeric_limits<float>::infinity());
  drop_below(scores.subspan(split), higher, weights.subspan(split));
}

}  // namespace quire
