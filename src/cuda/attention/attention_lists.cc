#include "cuda/attention/attention_lists.h"

#include <algorithm>

namespace quire::cuda {
namespace {

bool equal_spans(std::span<const AttentionSpan> a, std::span<const AttentionSpan> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const AttentionSpan& x, const AttentionSpan& y) {
    return x.pages == y.pages && x.row == y.row && x.rows == y.rows && x.position == y.position;
  });
}

}  // namespace

void AttentionLists::begin(const Stream& stream) {
  if (step_ == stream.step()) return;
  step_ = stream.step();
  used_tiles_ = used_runs_ = 0;
}

AttentionLists::Found AttentionLists::tiles(const Stream& stream, std::span<const AttentionSpan> spans,
                                            const TileLists::Key& key) {
  begin(stream);
  for (size_t i = 0; i < used_tiles_; ++i) {
    if (tiles_[i].key == key && equal_spans(tiles_[i].spans, spans)) return {tiles_[i], true};
  }
  if (used_tiles_ == tiles_.size()) tiles_.emplace_back();
  TileLists& lists = tiles_[used_tiles_++];
  lists.spans.assign(spans.begin(), spans.end());
  lists.key = key;
  lists.tables.clear();
  for (TileList* list : {&lists.few, &lists.many}) {
    list->tiles.clear();
    list->splits = 1;
    list->queries = 0;
  }
  return {lists, false};
}

AttentionLists::FoundRuns AttentionLists::runs(const Stream& stream, std::span<const AttentionSpan> spans,
                                               bool in_order) {
  begin(stream);
  for (size_t i = 0; i < used_runs_; ++i) {
    if (runs_[i].in_order == in_order && equal_spans(runs_[i].spans, spans)) return {runs_[i], true};
  }
  if (used_runs_ == runs_.size()) runs_.emplace_back();
  PageRunList& list = runs_[used_runs_++];
  list.spans.assign(spans.begin(), spans.end());
  list.in_order = in_order;
  list.runs.clear();
  return {list, false};
}

}  // namespace quire::cuda
