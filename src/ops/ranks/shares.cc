#include "ops/ranks/shares.h"

#include "kernels/packed.h"

namespace quire {

PanelShare panel_share(RankNumber number, int rows, int kv_heads) {
  const int panels = (rows + kPanel - 1) / kPanel;
  if (kv_heads >= number.ranks && rows % (kv_heads * kPanel) == 0) {
    const int of_head = rows / kv_heads / kPanel;
    const Share share = number.share(kv_heads);
    return {{share.begin * of_head, share.end * of_head}, false};
  }
  if (panels == 1) return {{0, 1}, false};  // as fast computed as gathered
  return {number.share(panels), true};
}

HeadShare head_share(RankNumber number, const LayerCache& layer, const Rows& attended, int heads) {
  const int kv_heads = layer.model_kv_heads;
  if (kv_heads == 0)  // the cache has all KV heads
    return {.queries = number.share(heads), .attended = {attended, heads, attended.cols / heads}};
  const Share own = number.share(kv_heads);
  const int group = heads / kv_heads;
  return {{own.begin * group, own.end * group}, own.begin, {attended, kv_heads, attended.cols / kv_heads}};
}

HeadNorm some_heads(HeadNorm norm, int first, int count) {
  norm.groups = count;
  const size_t skipped = norm.weight_stride * static_cast<size_t>(first);
  if (norm.norm.weight) norm.norm.weight += skipped;
  if (norm.norm.bias) norm.norm.bias += skipped;
  return norm;
}

}  // namespace quire
