#include "cuda/sample.h"

#include <algorithm>
#include <cassert>
#include <utility>
#include <vector>

#include "cuda/kernels/sample.h"
#include "cuda/row_arguments.h"

namespace quire::cuda {
namespace {

// With fewer candidates in a part than twice the wanted ones, parts of candidates would not become fewer.
static_assert(2 * Pick::kMostBest <= BestOfParts<false>::kPart);

template <bool kOfColumns>
int parts_of(int size) {
  constexpr int kPart = BestOfParts<kOfColumns>::kPart;
  return (size + kPart - 1) / kPart;
}

// Candidates of a row: those of the columns' parts, and those of parts of candidates, in turn.
struct RowCandidates {
  int first, second;
};
RowCandidates candidates_of(int cols, int most) {
  const int parts = parts_of<true>(cols);
  if (parts == 1) return {0, 0};
  return {parts * most, parts_of<false>(parts * most) * most};
}

// A call, as kernels read it.
struct PlacedPicks {
  Global<const RowPick> picks = nullptr;
  Global<const uint32_t> masks = nullptr;
  Global<const int32_t> columns = nullptr;
  int most = 0;  // best numbers of any row
  bool any_columns = false;
};

PlacedPicks place(Stream& stream, std::span<const Pick> picks) {
  PlacedPicks placed;
  std::vector<RowPick> rows;
  std::vector<int32_t> columns;
  const uint32_t* const masks = stream.place(std::span<const uint32_t>());  // the first place of all
  size_t words = 0;
  for (const Pick& pick : picks) {
    assert(pick.best >= 0 && pick.best <= Pick::kMostBest);
    RowPick& row = rows.emplace_back(RowPick{.best = pick.best,
                                             .mask = -1,
                                             .columns = static_cast<int32_t>(columns.size()),
                                             .count = static_cast<int32_t>(pick.columns.size()),
                                             .at = static_cast<int32_t>(words)});
    if (pick.best > 0 && !pick.mask.empty()) row.mask = static_cast<int32_t>(stream.place(pick.mask) - masks);
    columns.insert(columns.end(), pick.columns.begin(), pick.columns.end());
    words += pick.words();
    placed.most = std::max(placed.most, pick.best);
  }
  placed.picks = stream.place(std::span<const RowPick>(rows));
  placed.masks = masks;
  placed.columns = stream.place(std::span<const int32_t>(columns));
  placed.any_columns = !columns.empty();
  return placed;
}

// Of rows [first, first + rows).
void find_best(Stream& stream, const Rows& x, const PlacedPicks& placed, int first, int rows, uint32_t* results) {
  int parts = parts_of<true>(x.cols), size = x.cols;
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
    parts = parts_of<false>(size);
    const int32_t* const candidates = to;
    std::swap(to, spare);
    launch.template operator()<false>(candidates);
  }
}

size_t candidate_bytes(int cols, int most) {
  const RowCandidates candidates = candidates_of(cols, most);
  return static_cast<size_t>(candidates.first + candidates.second) * sizeof(int32_t);
}

}  // namespace

size_t pick_scratch_bytes(int cols) { return candidate_bytes(cols, Pick::kMostBest); }

void pick(Stream& stream, const Rows& x, std::span<const Pick> picks, uint32_t* results) {
  const PlacedPicks placed = place(stream, picks);
  const auto rows = static_cast<int>(picks.size());
  if (placed.most > 0) {
    const size_t bytes = candidate_bytes(x.cols, placed.most);
    assert(bytes <= stream.scratch_bytes());
    const int together =
        bytes == 0 ? rows : static_cast<int>(std::min(static_cast<size_t>(rows), stream.scratch_bytes() / bytes));
    for (int first = 0; first < rows; first += together)
      find_best(stream, x, placed, first, std::min(together, rows - first), results);
  }
  if (!placed.any_columns) return;
  stream.launch({.x = rows, .threads = ReadColumns::kThreads},
                ReadColumns{.x = readable(x),
                            .picks = placed.picks,
                            .columns = placed.columns,
                            .to = Global<int32_t>(reinterpret_cast<int32_t*>(results))});
}

}  // namespace quire::cuda
