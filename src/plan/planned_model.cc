#include "plan/planned_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "kernels/packed.h"
#include "model/families.h"
#include "model/packing/matrix_source.h"
#include "model/quantized/quantization.h"
#include "model/quantized/slot_codes.h"
#include "model/tensor_finder.h"
#include "model/tensors.h"
#include "plan/unknown_family.h"
#include "quant/gguf_blocks.h"

namespace quire {
namespace {

// How one matrix is stored.
struct StoredMatrix {
  std::string type;
  double bytes;
  Activations unit;  // of its products
  PanelFormat format;
  bool has_bias = false;
};

Activations unit_of(Activations mode, const PanelFormat& format) {
  return multiply_unit(activations_for(mode, format));
}

StoredMatrix stored_as(TensorType type, int rows, int cols, const ComputeForm& form) {
  const PackedMatrix packed = describe_packed(type, rows, cols);
  const auto file = tensor_bytes(type, std::array{static_cast<uint64_t>(rows), static_cast<uint64_t>(cols)});
  return {std::string(name(type)), static_cast<double>(form.packed || !file ? packed.bytes() : *file),
          unit_of(form.activations, packed.format), packed.format};
}

// The type for rows of this length: types in blocks need whole ones.
TensorType fitting_type(TensorType type, int cols) {
  if (static_cast<uint32_t>(cols) % info(type).block_elements == 0) return type;
  return cols % 32 == 0 ? TensorType::Q8_0 : TensorType::F16;
}

// Collects a model's weights; `stored` says how each matrix is.
template <class Stored>
class WeightCount : public TensorVisitor {
 public:
  WeightCount(PlannedModel& model, const Stored& stored) : model_(model), stored_(stored) {}

  void matrix(const Slot& slot, int rows, int cols, Linear&) override {
    const StoredMatrix m = stored_(slot, rows, cols);
    model_.formats.emplace(std::pair(slot.tensor, slot.layer), m.format);
    count(m.type, static_cast<uint64_t>(rows) * static_cast<uint64_t>(cols), m.bytes);
    if (m.has_bias) bias(slot, rows, unread_);
    add_matrix(model_.config, slot, rows, cols, m.bytes, m.unit, model_.work);
    if (slot.tensor == Tensor::kEmbedding && model_.config.tied_output)
      add_matrix(model_.config, {Tensor::kOutput}, rows, cols, m.bytes, m.unit, model_.work);
  }
  void vector(const Slot&, const std::vector<int>& shape, Vector&, Change) override {
    uint64_t size = 1;
    for (const int n : shape) size *= static_cast<uint64_t>(n);
    count("F32", size, 4.0 * static_cast<double>(size));
  }
  void bias(const Slot&, int size, Vector&) override { count("F32", static_cast<uint64_t>(size), 4.0 * size); }

  void finish() {
    for (auto& [type, of_type] : types_) model_.types.push_back(std::move(of_type));
    std::ranges::stable_sort(model_.types, std::ranges::greater(), &WeightsOfType::bytes);
  }

 private:
  void count(const std::string& type, uint64_t weights, double bytes) {
    WeightsOfType& of_type = types_[type];
    of_type.type = type;
    of_type.weights += weights;
    of_type.bytes += bytes;
  }

  PlannedModel& model_;
  const Stored& stored_;
  Vector unread_;
  std::map<std::string, WeightsOfType> types_;
};

template <class Stored>
void count_weights(PlannedModel& model, const ComputeForm& form, const Stored& stored) {
  WeightCount count(model, stored);
  Weights unread;
  visit_tensors(model.config, unread, count);
  count.finish();
  add_mixers(model.config, form.kv, model.work);
}

// The matrices of a checkpoint of a known family, as its headers describe them.
class CheckpointMatrices {
 public:
  CheckpointMatrices(const Checkpoint& checkpoint, const ModelConfig& config, const ComputeForm& form)
      : checkpoint_(checkpoint),
        form_(form),
        finder_(checkpoint, config, spelling_of(checkpoint)),
        quantization_(checkpoint.hf() ? read_quantization(*checkpoint.hf()) : std::nullopt) {}

  StoredMatrix operator()(const Slot& slot, int rows, int cols) const {
    const Source source = source_of_matrix(finder_, slot, quantization_.has_value());
    StoredMatrix stored = find_matrix(slot, source, rows, cols);
    stored.has_bias = finder_.find(bias_name(source)) != nullptr;
    return stored;
  }

 private:
  StoredMatrix find_matrix(const Slot& slot, const Source& source, int rows, int cols) const {
    if (quantization_) {
      if (auto coded = find_codes(slot, source, rows, cols)) return *coded;
    }
    const TensorView* const view = finder_.find(source.name);
    if (!view) throw invalid("{}: tensor {} is missing", checkpoint_.file(), source.name);
    return stored_as(view->type, rows, cols, form_);
  }

  std::optional<StoredMatrix> find_codes(const Slot& slot, const Source& source, int rows, int cols) const {
    const int file_rows = source.rows > 0 ? source.rows : rows, file_cols = source.cols > 0 ? source.cols : cols;
    const FindTensor find = [this](const std::string& name) { return finder_.find(name); };
    const auto coded = open_slot_codes(*quantization_, checkpoint_.file(), find, slot, source, file_rows, file_cols);
    if (!coded) return std::nullopt;
    const PackedMatrix packed = describe_packed(coded->format, coded->factor, rows, cols);
    const Activations unit =
        coded->inputs.kind != InputCodes::Kind::kNone ? Activations::kInt8 : unit_of(form_.activations, packed.format);
    return StoredMatrix{quantization_->method, static_cast<double>(packed.bytes()), unit, packed.format};
  }

  const Checkpoint& checkpoint_;
  const ComputeForm form_;
  TensorFinder finder_;
  std::optional<Quantization> quantization_;
};

// The weights of an unknown family: its tensors by type, and its steps by the shape.
PlannedModel plan_unknown(const Checkpoint& checkpoint, const ComputeForm& form) {
  UnknownFamily found = read_unknown_family(checkpoint);
  std::map<TensorType, WeightsOfType> types;
  for (const TensorView& view : checkpoint.tensors()) {
    WeightsOfType& of_type = types[view.type];
    of_type.type = name(view.type);
    of_type.weights += std::accumulate(view.shape.begin(), view.shape.end(), uint64_t{1}, std::multiplies<>());
    of_type.bytes += static_cast<double>(view.bytes.size());
  }
  if (types.empty()) throw invalid("{} has no tensors", checkpoint.file());
  const TensorType main =
      std::ranges::max_element(types, {}, [](const auto& entry) { return entry.second.bytes; })->first;
  PlannedModel model = plan_config(checkpoint.file(), std::move(found.config),
                                   {.type = info(main).loadable ? main : TensorType::BF16}, form);
  // The file knows better what it holds than a guess by the shape does.
  const double guessed = model.weight_bytes();
  model.types.clear();
  for (auto& [type, of_type] : types) model.types.push_back(std::move(of_type));
  std::ranges::stable_sort(model.types, std::ranges::greater(), &WeightsOfType::bytes);
  for (LinearWork& linear : model.work.linears) linear.bytes *= model.weight_bytes() / guessed;
  model.assumptions = std::move(found.assumptions);
  return model;
}

}  // namespace

double PlannedModel::weight_bytes() const {
  return std::accumulate(types.begin(), types.end(), 0.0,
                         [](double sum, const WeightsOfType& t) { return sum + t.bytes; });
}

uint64_t PlannedModel::parameters() const {
  return std::accumulate(types.begin(), types.end(), uint64_t{0},
                         [](uint64_t sum, const WeightsOfType& t) { return sum + t.weights; });
}

PlannedModel plan_config(std::string name, ModelConfig config, const WeightStorage& storage, const ComputeForm& form) {
  PlannedModel model{
      .name = std::move(name), .config = std::move(config), .types = {}, .work = {}, .formats = {}, .assumptions = {}};
  count_weights(model, form, [&](const Slot& slot, int rows, int cols) -> StoredMatrix {
    if (slot.tensor == Tensor::kRouter) return stored_as(TensorType::F32, rows, cols, form);
    if (storage.bits == 0) return stored_as(fitting_type(storage.type, cols), rows, cols, form);
    const PanelFormat& format = panel_format(storage.bits <= 8 ? TensorType::Q8_0 : TensorType::BF16);
    return {fmt::format("{} bits", storage.bits), storage.bits / 8 * rows * cols, unit_of(form.activations, format),
            format};
  });
  if (storage.bits > 0) model.formats.clear();
  return model;
}

PlannedModel plan_checkpoint(const Checkpoint& checkpoint, const ComputeForm& form) {
  try {
    find_family(checkpoint);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::kUnsupported) throw;
    return plan_unknown(checkpoint, form);
  }
  PlannedModel model{.name = checkpoint.file(),
                     .config = read_model_config(checkpoint),
                     .types = {},
                     .work = {},
                     .formats = {},
                     .assumptions = {}};
  count_weights(model, form, CheckpointMatrices(checkpoint, model.config, form));
  return model;
}

}  // namespace quire
