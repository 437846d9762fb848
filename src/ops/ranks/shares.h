// What a rank computes of an operation, and what the ranks then gather. The same on every backend: the loader of weights relies
// on it, too.
#pragma once

#include "ops/cache_layout.h"
#include "ops/communicator.h"
#include "ops/linear.h"
#include "ops/rows.h"

namespace quire {

// A rank among `ranks`.
struct RankNumber {
  int rank = 0, ranks = 1;

  Share share(int units) const { return share_of(units, rank, ranks); }
};
inline RankNumber number_of(const Communicator& ranks) { return {ranks.rank(), ranks.ranks()}; }

// Panels of a linear's outputs.
struct PanelShare {
  Share panels;
  bool gathered;  // the other panels are needed, too
};
// rows: outputs. kv_heads: as Projection's.
PanelShare panel_share(RankNumber number, int rows, int kv_heads);

// Heads of a layer's attention.
struct HeadShare {
  Share queries;           // of the model's query heads
  int first_kv = 0;        // of the model's KV heads: the first in the cache
  SharedColumns attended;  // what the ranks then gather; without units: nothing
};
// layer: of the rank's cache. attended: results of all heads.
HeadShare head_share(RankNumber number, const LayerCache& layer, const Rows& attended, int heads);

// The heads of a norm from `first` on.
HeadNorm some_heads(HeadNorm norm, int first, int count);
// Whether a norm takes all heads together.
inline bool joins_heads(const HeadNorm& norm, int heads) {
  return norm.norm.kind != NormKind::kNone && norm.groups != heads;
}

}  // namespace quire
