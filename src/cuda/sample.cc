#include "cuda/sample.h"

#include <algorithm>
#include <cassert>
#include <utility>
#include <vector>

#include "cuda/kernels/sampling/draw.h"
#include "cuda/kernels/sampling/sample.h"
#include "cuda/row_arguments.h"

namespace quire::cuda {
namespace {

// With fewer candidates in a part than twice the wanted ones, parts of candidates would not become fewer.
static_assert(2 * Pick::kMostBest <= BestOfParts<false>::kPart);

template <class Kernel>
int parts_of(int size) {
  return (size + Kernel::kPart - 1) / Kernel::kPart;
}

// Candidates of a row: those of the columns' parts, and those of parts of candidates, in turn.
struct RowCandidates {
  int first, second;
};
RowCandidates candidates_of(int cols, int most) {
  const int parts = parts_of<BestOfParts<true>>(cols);
  if (parts == 1) return {0, 0};
  return {parts * most, parts_of<BestOfParts<false>>(parts * most) * most};
}

// A call, as kernels read it.
struct PlacedPicks {
  Global<const RowPick> picks = nullptr;
  Global<const uint32_t> masks = nullptr;
  Global<const int32_t> columns = nullptr;
  int most = 0;  // best numbers of any row
  bool any_columns = false, any_draws = false;
};

PlacedPicks place(Stream& stream, std::span<const Pick> picks) {
  PlacedPicks placed;
  std::vector<RowPick> rows;
  std::vector<int32_t> columns;
  const uint32_t* const masks = stream.place(std::span<const uint32_t>());  // the first place of all
  size_t words = 0, lists = 0;  // lists: of the best columns that the results do not have come after them
  for (const Pick& pick : picks) lists += pick.words();
  for (const Pick& pick : picks) {
    assert(pick.best >= 0 && pick.best <= Pick::kMostBest);
    RowPick& row = rows.emplace_back(RowPick{.best = pick.best,
                                             .mask = -1,
                                             .columns = static_cast<int32_t>(columns.size()),
                                             .count = static_cast<int32_t>(pick.columns.size()),
                                             .at = static_cast<int32_t>(words)});
    if (pick.best > 0 && !pick.mask.empty()) row.mask = static_cast<int32_t>(stream.place(pick.mask) - masks);
    columns.insert(columns.end(), pick.columns.begin(), pick.columns.end());
    placed.most = std::max(placed.most, pick.best);
    if (const std::optional<PickDraw>& draw = pick.draw) {
      assert(pick.best > 0 && pick.columns.empty());
      row.at = static_cast<int32_t>(lists);
      row.drawn = static_cast<int32_t>(words);
      row.best_only = draw->best_only ? 1 : 0;
      row.temperature = draw->temperature;
      row.top_p = draw->top_p;
      row.min_p = draw->min_p;
      row.uniform = draw->uniform;
      lists += pick.room() - pick.words();
      placed.any_draws = true;
    }
    words += pick.words();
  }
  placed.picks = stream.place(std::span<const RowPick>(rows));
  placed.masks = masks;
  placed.columns = stream.place(std::span<const int32_t>(columns));
  placed.any_columns = !columns.empty();
  return placed;
}

// Of rows [first, first + rows).
void find_best(Stream& stream, const Rows& x, const PlacedPicks& placed, int first, int rows, uint32_t* results) {
  int parts = parts_of<BestOfParts<true>>(x.cols), size = x.cols;
  auto* to = reinterpret_cast<int32_t*>(stream.scratch());
  auto* spare = to + static_cast<size_t>(rows) * static_cast<size_t>(candidates_of(x.cols, placed.most).first);
  const auto launch = [&]<bool kOfColumns>(const int32_t* candidates) {
    using Kernel = BestOfParts<kOfColumns>;
    stream.launch({.x = rows, .y = parts, .threads = Kernel::kThreads, .shared_bytes = Kernel::kSharedBytes},
                  Kernel{.x = readable(x.from(first)),
                         .picks = placed.picks + first,
                         .masks = placed.masks,
                         .candidates = Global<const int32_t>(candidates),
                         .to = Global<int32_t>(parts == 1 ? reinterpret_cast<int32_t*>(results) : to),
                         .size = size,
                         .most = placed.most,
                         .last = parts == 1,
                         .aligned = is_aligned(x)});
  };
  launch.template operator()<true>(nullptr);
  while (parts > 1) {
    size = parts * placed.most;
    parts = parts_of<BestOfParts<false>>(size);
    const int32_t* const candidates = to;
    std::swap(to, spare);
    launch.template operator()<false>(candidates);
  }
}

// For rows [first, first + rows), whose best numbers have been found.
void draw(Stream& stream, const Rows& x, const PlacedPicks& placed, int first, int rows, uint32_t* results) {
  const int parts = parts_of<SumWeights>(x.cols);
  auto* const sums = reinterpret_cast<uint64_t*>(stream.scratch());
  auto* const to = reinterpret_cast<int32_t*>(results);
  stream.launch({.x = rows, .y = parts, .threads = SumWeights::kThreads, .shared_bytes = SumWeights::kSharedBytes},
                SumWeights{.x = readable(x.from(first)),
                           .picks = placed.picks + first,
                           .masks = placed.masks,
                           .results = Global<const int32_t>(to),
                           .sums = Global<uint64_t>(sums),
                           .size = x.cols,
                           .aligned = is_aligned(x)});
  stream.launch({.x = rows, .threads = DrawColumns::kThreads, .shared_bytes = DrawColumns::kSharedBytes},
                DrawColumns{.x = readable(x.from(first)),
                            .picks = placed.picks + first,
                            .masks = placed.masks,
                            .results = Global<int32_t>(to),
                            .sums = Global<const uint64_t>(sums),
                            .size = x.cols,
                            .parts = parts,
                            .aligned = is_aligned(x),
                            .unused = 0});
}

// Of scratch memory, for a row.
size_t row_bytes(int cols, int most) {
  const RowCandidates candidates = candidates_of(cols, most);
  return std::max(static_cast<size_t>(candidates.first + candidates.second) * sizeof(int32_t),
                  static_cast<size_t>(parts_of<SumWeights>(cols)) * sizeof(uint64_t));
}

}  // namespace

size_t pick_scratch_bytes(int cols) { return row_bytes(cols, Pick::kMostBest); }

void pick(Stream& stream, const Rows& x, std::span<const Pick> picks, uint32_t* results) {
  const PlacedPicks placed = place(stream, picks);
  const auto rows = static_cast<int>(picks.size());
  if (placed.most > 0) {
    const size_t bytes = row_bytes(x.cols, placed.most);
    assert(bytes <= stream.scratch_bytes());
    const auto together = static_cast<int>(std::min(static_cast<size_t>(rows), stream.scratch_bytes() / bytes));
    for (int first = 0; first < rows; first += together) {
      const int some = std::min(together, rows - first);
      find_best(stream, x, placed, first, some, results);
      if (placed.any_draws) draw(stream, x, placed, first, some, results);
    }
  }
  if (!placed.any_columns) return;
  stream.launch({.x = rows, .threads = ReadColumns::kThreads},
                ReadColumns{.x = readable(x),
                            .picks = placed.picks,
                            .columns = placed.columns,
                            .to = Global<int32_t>(reinterpret_cast<int32_t*>(results))});
}

}  // namespace quire::cuda
