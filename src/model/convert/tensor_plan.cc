#include "model/convert/tensor_plan.h"

#include <algorithm>
#include <cassert>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "base/error.h"
#include "model/quantized/input_transforms.h"
#include "model/quantized/quantization.h"
#include "model/quantized/slot_codes.h"
#include "model/tensor_finder.h"

namespace quire {
namespace {

void add_once(Tensor tensor, std::vector<Tensor>& to) {
  if (std::ranges::find(to, tensor) == to.end()) to.push_back(tensor);
}

class Planner : public TensorVisitor {
 public:
  Planner(const Checkpoint& checkpoint, const ModelConfig& config, const Family& target)
      : checkpoint_(checkpoint),
        config_(config),
        finder_(checkpoint, config, spelling_of(checkpoint)),
        target_(target),
        quantization_(read_quantization(*checkpoint.hf())) {}

  void matrix(const Slot& slot, int rows, int cols, Linear&) override {
    Source from = source_of_matrix(finder_, slot, quantization_.has_value());
    const Source to = find_source(config_, slot, FileKind::kGguf, target_.gguf);
    const int file_rows = from.rows > 0 ? from.rows : rows, file_cols = from.cols > 0 ? from.cols : cols,
              items = from.stacked ? slot.items : 1, item = from.stacked ? slot.item : 0;
    const int rows_of_item = to.rows > 0 ? to.rows : rows, items_to = to.stacked ? slot.items : 1;
    assert(!to.transposed && to.cols == 0);
    FileMatrix matrix{nullptr, item, items, file_rows, file_cols, from.transposed};
    if (quantization_) matrix.coded = find_codes(slot, from, file_rows, file_cols);
    if (matrix.coded)
      matrix.transposed = from.transposed = false;
    else
      matrix.view = &get(from.name);
    const TensorType type = matrix.coded ? TensorType::F16 : matrix.view->type;
    PlannedTensor& tensor = planned(to.name);
    add_once(slot.tensor, tensor.matrices);
    tensor.layer = slot.layer;
    if (tensor.parts.empty()) {
      tensor.type = type;
      if (to.stacked) tensor.shape.push_back(static_cast<uint64_t>(items_to));
      if (slot.tensor != Tensor::kSharedSwitch) tensor.shape.push_back(static_cast<uint64_t>(rows_of_item));
      tensor.shape.push_back(static_cast<uint64_t>(cols));
    }
    if (is_small_table(slot.tensor) || tensor.type != type) tensor.type = TensorType::F32;
    PlannedPart part{slot, std::move(matrix), from, to, rows, cols};
    part.row_offset = to.stacked ? slot.item * rows_of_item : 0;
    tensor.parts.push_back(part);

    const TensorView* bias = finder_.find(bias_name(from));
    if (!bias) return;
    PlannedTensor& biases = planned(bias_name(to));
    if (biases.parts.empty()) {
      if (to.stacked) biases.shape.push_back(static_cast<uint64_t>(items_to));
      biases.shape.push_back(static_cast<uint64_t>(rows_of_item));
    }
    part.from = {bias, item, items, file_rows, 1, false, nullptr};
    part.rows_from.first_col = 0;
    part.cols = 1;
    biases.parts.push_back(part);
  }

  void vector(const Slot& slot, const std::vector<int>& shape, Vector&, Change change) override {
    const Source from = finder_.source_of(slot), to = find_source(config_, slot, FileKind::kGguf, target_.gguf);
    // Convolutions are transposed when they are loaded, from either kind of file.
    if (change == Change::kNone) change = from.change;
    if (change == Change::kTranspose) change = Change::kNone;
    const std::vector<std::string> names = vector_names(from, shape);
    for (const std::string& name : names) {
      add_vector(slot, get(name), to.name, {shape.begin(), shape.end()}, change, static_cast<int>(names.size()));
    }
  }
  void bias(const Slot& slot, int size, Vector&) override {
    const Source from = finder_.source_of(slot), to = find_source(config_, slot, FileKind::kGguf, target_.gguf);
    add_vector(slot, get(bias_name(from)), bias_name(to), {static_cast<uint64_t>(size)}, Change::kNone);
  }

  std::vector<PlannedTensor> tensors;

 private:
  // The codes of a matrix; null: it has none.
  std::shared_ptr<const CodedMatrix> find_codes(const Slot& slot, const Source& from, int rows, int cols) const {
    const std::string module(module_of(from.name));
    const FindTensor find = [this](const std::string& name) { return finder_.find(name); };
    if (!is_table(slot.tensor) &&
        !read_input_transform(*quantization_, {checkpoint_.file(), find, checkpoint_.tensors()}, module, cols).empty())
      throw unsupported("{}: the inputs of {} are scaled or rotated, which GGUF files cannot express",
                        checkpoint_.file(), module);
    auto coded = open_slot_codes(*quantization_, checkpoint_.file(), find, slot, from, rows, cols);
    if (!coded) return nullptr;
    if (transposes_codes(from) || from.first_col != 0)
      throw unsupported("{}: {} is quantized across its outputs, which cannot be written as GGUF yet",
                        checkpoint_.file(), module);
    return std::make_shared<const CodedMatrix>(std::move(*coded));
  }

  // A vector is a matrix of one column, so that its elements can be moved as rows are.
  // parts: how many such vectors the planned tensor is joined of.
  void add_vector(const Slot& slot, const TensorView& view, const std::string& name, std::vector<uint64_t> shape,
                  Change change, int parts = 1) {
    int size = 1;
    for (const uint64_t extent : shape) size *= static_cast<int>(extent);
    size /= parts;
    PlannedTensor& tensor = planned(name);
    const int row_offset = static_cast<int>(tensor.parts.size()) * size;
    tensor.shape = std::move(shape);
    tensor.parts.push_back(PlannedPart{.slot = slot,
                                       .from = {&view, 0, 1, size, 1, false, nullptr},
                                       .rows_from = {},
                                       .rows_to = {},
                                       .rows = size,
                                       .cols = 1,
                                       .row_offset = row_offset,
                                       .change = change});
  }

  PlannedTensor& planned(const std::string& name) {
    const auto [it, is_new] = index_.try_emplace(name, tensors.size());
    if (is_new) tensors.push_back(PlannedTensor{name, TensorType::F32, {}, {}});
    return tensors[it->second];
  }

  const TensorView& get(const std::string& name) const {
    const TensorView* view = finder_.find(name);
    assert(view && "check_weights() has found it");
    return *view;
  }

  const Checkpoint& checkpoint_;
  const ModelConfig& config_;
  const TensorFinder finder_;
  const Family& target_;
  const std::optional<Quantization> quantization_;
  std::map<std::string, size_t> index_;
};

}  // namespace

size_t stacked_matrices(const PlannedTensor& tensor) { return tensor.shape.size() > 2 ? tensor.shape.front() : 1; }

uint64_t PlannedTensor::elements() const {
  uint64_t product = 1;
  for (const uint64_t extent : shape) product *= extent;
  return product;
}

bool is_small_table(Tensor t) {
  return t == Tensor::kPositions || t == Tensor::kSegments || t == Tensor::kRouter || t == Tensor::kSharedSwitch;
}

std::vector<PlannedTensor> plan_tensors(const Checkpoint& checkpoint, const ModelConfig& config, const Family& target) {
  Planner planner(checkpoint, config, target);
  Weights unused;
  visit_tensors(config, unused, planner);
  return std::move(planner.tensors);
}

void reorder_rotated_rows(const ModelConfig& from, const ModelConfig& to, std::vector<PlannedTensor>& tensors) {
  if (from.ropes.empty() || from.ropes[0].kind == to.ropes[0].kind) return;
  for (PlannedTensor& tensor : tensors) {
    for (PlannedPart& part : tensor.parts) {
      const Tensor kind = part.slot.tensor;
      if (kind != Tensor::kQ && kind != Tensor::kK && kind != Tensor::kQNorm && kind != Tensor::kKNorm) continue;
      part.head = std::get<Attention>(from.layers[static_cast<size_t>(part.slot.layer)].mixer).key_dim;
      part.rotated = from.ropes[0].dim;
      part.order = to.ropes[0].kind;
    }
  }
}

int PlannedPart::row_to(int i) const {
  const int j = head > 0 ? i % head : 0;
  int moved = i;
  if (j < rotated) {
    const int half = rotated / 2;
    if (order == RopeKind::kNeighbours)
      moved = i - j + (j < half ? 2 * j : 2 * (j - half) + 1);
    else
      moved = i - j + j % 2 * half + j / 2;
  }
  return row_offset + rows_to.row(moved);
}

}  // namespace quire
