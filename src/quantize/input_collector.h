// Sums what calibration needs of the inputs of a model's linears, while the model computes.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "base/team.h"
#include "model/config.h"
#include "model/tensors.h"
#include "model/weights.h"
#include "ops/input_observer.h"
#include "quantize/gram_sum.h"
#include "quantize/input_statistics.h"

namespace quire {

// Sums depend on the rows and their order alone, not on the threads. Linears that read the same inputs, such as queries,
// keys and values, share their statistics.
class InputCollector final : public InputObserver {
 public:
  struct Wants {
    std::function<bool(const Slot& slot)> gram = {};  // whether to sum a matrix's Gram matrix; empty: of none
    int sample_rows = 0;                              // of each matrix's inputs
  };
  // The weights must be there while rows are seen, the other references as long as the collector. compute: for Gram matrices.
  InputCollector(const ModelConfig& config, const Weights& weights, const Compute& compute, Wants wants);

  void see(std::span<const Linear* const> linears, const Rows& x, int rows) override;

  // Of a matrix's inputs; nullptr: none came. Finishes Gram matrices, so it must be called again after more rows. Throws
  // Error if an input was not finite.
  std::shared_ptr<const InputStatistics> of(const Slot& slot);

 private:
  InputStatistics* sums_of(std::span<const Linear* const> linears, int cols);
  void sample(InputStatistics& sums, const Rows& x, int rows) const;

  const Compute compute_;
  const Wants wants_;
  std::map<std::tuple<Tensor, int, int>, const Linear*> linears_;  // by tensor, layer and item
  std::unordered_map<const Linear*, bool> wants_gram_;
  std::unordered_map<const Linear*, std::shared_ptr<InputStatistics>> seen_;
  GramSum gram_;
};

}  // namespace quire
