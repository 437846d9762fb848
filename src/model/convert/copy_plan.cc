// The tensors of a GGUF file on their way to another.
#include <algorithm>
#include <map>

#include "model/convert/tensor_plan.h"
#include "model/tensor_finder.h"

namespace quire {
namespace {

// Which matrices of the model lie in the tensors of a GGUF file, by name.
class MatrixNames : public TensorVisitor {
 public:
  struct Found {
    std::vector<Tensor> matrices;
    int layer = -1;
  };

  MatrixNames(const Checkpoint& checkpoint, const ModelConfig& config)
      : finder_(checkpoint, config, spelling_of(checkpoint)) {}

  void matrix(const Slot& slot, int, int, Linear&) override {
    Found& found = names[finder_.source_of(slot).name];
    if (std::ranges::find(found.matrices, slot.tensor) == found.matrices.end()) found.matrices.push_back(slot.tensor);
    found.layer = slot.layer;
  }
  void vector(const Slot&, const std::vector<int>&, Vector&, Change) override {}
  void bias(const Slot&, int, Vector&) override {}

  std::map<std::string, Found, std::less<>> names;

 private:
  const TensorFinder finder_;
};

}  // namespace

std::vector<PlannedTensor> plan_copies(const Checkpoint& checkpoint, const ModelConfig& config) {
  MatrixNames matrices(checkpoint, config);
  Weights unused;
  visit_tensors(config, unused, matrices);
  std::vector<PlannedTensor> tensors;
  for (const TensorView& view : checkpoint.tensors()) {
    PlannedTensor tensor{.name = view.name, .type = view.type, .shape = view.shape, .parts = {}};
    if (const auto found = matrices.names.find(view.name); found != matrices.names.end()) {
      tensor.matrices = found->second.matrices;
      tensor.layer = found->second.layer;
    }
    // All dimensions but the last make rows; only tensors that keep their type have others.
    const auto cols = static_cast<int>(view.shape.empty() ? 1 : view.shape.back()),
               rows = cols > 0 ? static_cast<int>(tensor.elements() / static_cast<uint64_t>(cols)) : 0;
    tensor.parts.push_back(PlannedPart{.slot = {.tensor = Tensor::kEmbedding},  // its rows keep their order
                                       .from = {&view, 0, 1, rows, cols, false, nullptr},
                                       .rows_from = {},
                                       .rows_to = {},
                                       .rows = rows,
                                       .cols = cols});
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

// 32 columns suffice for the types on the right.
TensorType fitting_type(TensorType wanted, uint64_t cols) {
  const auto fits = [&](TensorType type) { return cols % info(type).block_elements == 0; };
  if (fits(wanted)) return wanted;
  TensorType type = wanted;
  switch (wanted) {
    case TensorType::IQ1_S:
    case TensorType::IQ1_M:
    case TensorType::IQ2_XXS:
    case TensorType::IQ2_XS:
    case TensorType::IQ2_S:
    case TensorType::IQ3_XXS:
    case TensorType::IQ3_S:
    case TensorType::IQ4_XS:
      type = TensorType::IQ4_NL;
      break;
    case TensorType::Q1_0:
    case TensorType::Q2_0:
    case TensorType::Q2_K:
    case TensorType::Q3_K:
    case TensorType::TQ1_0:
    case TensorType::TQ2_0:
    case TensorType::NVFP4:
      type = TensorType::Q4_0;
      break;
    case TensorType::Q4_K:
      type = TensorType::Q5_0;
      break;
    case TensorType::Q5_K:
      type = TensorType::Q5_1;
      break;
    case TensorType::Q6_K:
      type = TensorType::Q8_0;
      break;
    default:
      break;
  }
  return fits(type) ? type : TensorType::F16;
}

}  // namespace quire
