// What operations of attention place on the device for the spans of a step: once, and not for each layer again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cuda/kernels/attention_call.h"
#include "cuda/kernels/position.h"
#include "cuda/stream.h"
#include "ops/attention.h"

namespace quire::cuda {

// Tiles of one shape.
struct TileList {
  std::vector<QueryTile> tiles;
  Global<const QueryTile> placed = nullptr;
  int splits = 1, queries = 0;  // the most of any tile
};

// Of attend(): page tables, and tiles of spans of few rows and of many.
struct TileLists {
  // What they depend on, apart from the spans.
  struct Key {
    int window, group, few_queries, many_queries;
    bool causal;
    bool operator==(const Key&) const = default;
  };
  std::vector<AttentionSpan> spans;
  Key key{};
  std::vector<int32_t> tables;
  Global<const int32_t> placed_tables = nullptr;
  TileList few, many;
};

// Of position_and_store().
struct PageRunList {
  std::vector<AttentionSpan> spans;
  bool in_order = false;
  std::vector<PageRun> runs;
  Global<const PageRun> placed = nullptr;
};

// The lists of the current step. Calls allocate nothing once they have grown. The page tables of equal spans must be equal within a step.
class AttentionLists {
 public:
  // The lists for these spans, and whether they are those of an earlier call in this step. Otherwise the caller fills them.
  struct Found {
    TileLists& lists;
    bool known;
  };
  Found tiles(const Stream& stream, std::span<const AttentionSpan> spans, const TileLists::Key& key);
  struct FoundRuns {
    PageRunList& list;
    bool known;
  };
  FoundRuns runs(const Stream& stream, std::span<const AttentionSpan> spans, bool in_order);

 private:
  void begin(const Stream& stream);

  uint64_t step_ = 0;  // Stream::step()
  std::vector<TileLists> tiles_;
  std::vector<PageRunList> runs_;
  size_t used_tiles_ = 0, used_runs_ = 0;  // in this step
};

}  // namespace quire::cuda
