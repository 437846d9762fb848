#include "model/packing/output_rows.h"

#include <algorithm>
#include <utility>

#include "ops/backend.h"

namespace quire {

OutputRows take_output_rows(const Weights& weights, TokenIds ids, Backend& backend) {
  std::ranges::sort(ids);
  const Linear& all = weights.output;
  OutputRows some;
  some.matrix = all;
  PackedMatrix& matrix = some.matrix.weight;
  matrix = describe_packed(all.weight.format, all.weight.factor, static_cast<int>(ids.size()), all.weight.cols);
  some.memory = BackendMemory(backend, matrix.bytes());
  matrix.data = some.memory.data();
  backend.take_rows(all.weight, ids, some.memory.data());
  if (!all.bias.empty()) {
    const std::vector<float> biases = all.bias.values(backend);
    std::vector<float> taken;
    for (const TokenId id : ids) taken.push_back(biases[static_cast<size_t>(id)]);
    some.matrix.bias = Vector(backend, taken);
  }
  some.ids = std::move(ids);
  return some;
}

}  // namespace quire
