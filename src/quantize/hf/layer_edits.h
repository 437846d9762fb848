// The changes that a method makes to a model's tensors before they are quantized: factors of inputs, folded into norms and
// into the matrices that compute them.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/team.h"
#include "quantize/find_inputs.h"
#include "quantize/hf/folds.h"
#include "quantize/hf/method.h"
#include "quantize/hf/source.h"

namespace quire {

// Throws Error naming the module: statistics of another size, or numbers that are not finite.
void check_statistics(const InputStatistics& inputs, int cols, const std::string& module);

struct TensorEdit {
  std::vector<float> columns;  // factors; empty: none
  std::vector<float> rows;     // factors of a matrix's rows, or a bias' elements; empty: none
  std::vector<float> values;   // of a norm's weight, instead of its own; empty: as they are
};

class LayerEdits {
 public:
  // quantized, rotated: of each of the source's tensors, whether it will be, and whether its inputs will be rotated, so that
  // no factors can be folded into what computes them. All must outlive the edits.
  LayerEdits(const ModelSource& source, const HfMethod& method, const MethodSettings& settings,
             const std::vector<bool>& quantized, const std::vector<bool>& rotated, const FindInputs& inputs,
             Team& team);

  // Finds the edits of a layer; forgets those of others. notes: what the user should know is added.
  void open_layer(int layer, std::vector<std::string>& notes);
  // null: the tensor, by its place in the source, stays as it is.
  const TensorEdit* find(size_t tensor) const;

 private:
  struct Readers;
  void fold(const FoldPoint& point, std::vector<std::string>& notes);
  bool collect(const FoldPoint& point, Readers& readers) const;
  bool can_produce(const FoldPoint& point) const;
  void scale_producer(const FoldPoint& point, std::vector<float>& scales);
  std::shared_ptr<const InputStatistics> inputs_of(const FoldPoint& point, int cols) const;

  const ModelSource& source_;
  const HfMethod& method_;
  const MethodSettings& settings_;
  const std::vector<bool>&quantized_, &rotated_;
  const FindInputs& inputs_;
  Team& team_;
  std::map<size_t, TensorEdit> edits_;
};

// The matrix or the vector with its edit.
void apply(const TensorEdit& edit, FloatMatrix& to);

}  // namespace quire
