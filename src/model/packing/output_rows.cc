#include "model/packing/output_rows.h"

#include <algorithm>
#include <utility>

#include "kernels/take_rows.h"

namespace quire {

OutputRows take_output_rows(const Weights& weights, TokenIds ids, Team& team) {
  std::ranges::sort(ids);
  const Linear& all = weights.output;
  OutputRows some;
  some.matrix = all;
  const auto rows = static_cast<int>(ids.size());
  PackedMatrix& matrix = some.matrix.weight;
  matrix = describe_packed(all.weight.format, all.weight.factor, rows, all.weight.cols);
  some.memory = LargeBuffer(matrix.bytes());
  matrix.data = some.memory.data();
  team.for_tiles(matrix.panels(),
                 [&](int panel, int) { take_rows(all.weight, ids, some.memory.data(), panel, panel + 1); });
  if (!all.bias.empty()) {
    some.matrix.bias.clear();
    for (const TokenId id : ids) some.matrix.bias.push_back(all.bias[static_cast<size_t>(id)]);
  }
  some.ids = std::move(ids);
  return some;
}

}  // namespace quire
