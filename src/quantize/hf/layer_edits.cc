#include "quantize/hf/layer_edits.h"

#include <algorithm>
#include <cassert>
#include <cmath>

#include "base/error.h"
#include "base/half.h"

namespace quire {
namespace {

// Rows of all readers that the search for factors measures: the error is a sum over rows, and hundreds show which factors
// are best.
constexpr int kSearchRows = 512;

bool same_slot(const Slot& a, const Slot& b) { return a.tensor == b.tensor && a.layer == b.layer && a.item == b.item; }

bool has_use(const SourceTensor& tensor, const Slot& slot) {
  return std::ranges::any_of(tensor.uses, [&](const SourceTensor::Use& use) { return same_slot(use.slot, slot); });
}

const SourceTensor::Use& use_of(const SourceTensor& tensor, const Slot& slot) {
  return *std::ranges::find_if(tensor.uses, [&](const SourceTensor::Use& use) { return same_slot(use.slot, slot); });
}

float rounded_to(TensorType type, float x) {
  return type == TensorType::F16    ? f16_to_f32(f32_to_f16(x))
         : type == TensorType::BF16 ? bf16_to_f32(f32_to_bf16(x))
                                    : x;
}

bool lies_plainly(const SourceTensor::Use& use) {
  return !use.place.transposed && !use.place.stacked && use.place.first_col == 0 && use.place.cols == 0;
}

template <class Numbers>
bool all_finite(const Numbers& numbers) {
  return std::ranges::all_of(numbers, [](auto x) { return std::isfinite(x); });
}

}  // namespace

// The matrices of a fold point.
struct LayerEdits::Readers {
  std::vector<size_t> tensors;  // of the source
  int cols = 0, rows = 0;
};

void check_statistics(const InputStatistics& inputs, int cols, const std::string& module) {
  if (inputs.cols != cols)
    throw invalid("the statistics of {} are of {} inputs, but it has {}: they are another model's", module, inputs.cols,
                  cols);
  if (all_finite(inputs.squares) && all_finite(inputs.magnitudes) && all_finite(inputs.largest) &&
      all_finite(inputs.gram) && all_finite(inputs.sample))
    return;
  throw invalid(
      "the inputs of {} are not all finite over the calibration text; quantize by a method without inputs, such "
      "as rtn-int4",
      module);
}

LayerEdits::LayerEdits(const ModelSource& source, const HfMethod& method, const MethodSettings& settings,
                       const std::vector<bool>& quantized, const std::vector<bool>& rotated, const FindInputs& inputs,
                       Team& team)
    : source_(source),
      method_(method),
      settings_(settings),
      quantized_(quantized),
      rotated_(rotated),
      inputs_(inputs),
      team_(team) {}

void LayerEdits::open_layer(int layer, std::vector<std::string>& notes) {
  edits_.clear();
  if (!method_.scales || layer < 0) return;
  for (const FoldPoint& point : fold_points(source_.config, layer)) fold(point, notes);
}

const TensorEdit* LayerEdits::find(size_t tensor) const {
  const auto found = edits_.find(tensor);
  return found == edits_.end() ? nullptr : &found->second;
}

// False if factors cannot be folded here: a reader's tensor has other uses, or none of them is quantized.
bool LayerEdits::collect(const FoldPoint& point, Readers& readers) const {
  size_t found = 0;
  bool any = false;
  for (size_t i = 0; i < source_.tensors.size(); ++i) {
    const SourceTensor& tensor = source_.tensors[i];
    const auto reads = [&](const SourceTensor::Use& use) {
      return std::ranges::any_of(point.readers, [&](const Slot& slot) { return same_slot(slot, use.slot); });
    };
    if (tensor.is_bias || std::ranges::none_of(tensor.uses, reads)) continue;
    const bool is_plain =
        tensor.is_matrix() && std::ranges::all_of(tensor.uses, reads) && std::ranges::all_of(tensor.uses, lies_plainly);
    if (!is_plain || rotated_[i] || (readers.cols > 0 && readers.cols != tensor.from.cols)) return false;
    readers.tensors.push_back(i);
    readers.cols = tensor.from.cols;
    readers.rows += tensor.from.rows;
    found += tensor.uses.size();
    any |= quantized_[i];
  }
  return any && found == point.readers.size();
}

bool LayerEdits::can_produce(const FoldPoint& point) const {
  bool found = false;
  for (const SourceTensor& tensor : source_.tensors) {
    if (!has_use(tensor, point.producer)) continue;
    if (point.is_norm ? tensor.uses.size() != 1 || tensor.is_matrix() : !lies_plainly(use_of(tensor, point.producer)))
      return false;
    found |= !tensor.is_bias;
  }
  return found;
}

std::shared_ptr<const InputStatistics> LayerEdits::inputs_of(const FoldPoint& point, int cols) const {
  for (const Slot& slot : point.readers) {
    auto inputs = inputs_(slot);
    if (!inputs || inputs->rows == 0) continue;
    check_statistics(*inputs, cols, source_.file);
    return inputs;
  }
  return nullptr;
}

void LayerEdits::fold(const FoldPoint& point, std::vector<std::string>& notes) {
  Readers readers;
  if (!collect(point, readers) || !can_produce(point)) return;
  const auto inputs = inputs_of(point, readers.cols);
  if (!inputs) {
    notes.push_back(
        fmt::format("{}: its inputs are unknown, so none are scaled", source_.tensors[readers.tensors.front()].name));
    return;
  }
  const int step = std::max(1, readers.rows / kSearchRows);
  FloatMatrix sample((readers.rows + step - 1) / step, readers.cols);
  std::vector<float> largest(static_cast<size_t>(readers.cols));
  int seen = 0;
  for (const size_t i : readers.tensors) {
    FloatMatrix weights = read_source(source_, source_.tensors[i]);
    if (const TensorEdit* edit = find(i)) apply(*edit, weights);
    for (int r = 0; r < weights.rows; ++r, ++seen) {
      const auto row = weights.row(r);
      for (size_t c = 0; c < row.size(); ++c) largest[c] = std::max(largest[c], std::fabs(row[c]));
      if (seen % step == 0) std::ranges::copy(row, sample.row(seen / step).begin());
    }
  }
  InputScales found = method_.scales(sample, largest, *inputs, point.tied, settings_, team_);
  if (!all_finite(found.scales) || !std::ranges::all_of(found.scales, [](float s) { return s > 0; })) return;
  scale_producer(point, found.scales);
  for (const size_t i : readers.tensors) {
    std::vector<float>& columns = edits_[i].columns;
    if (columns.empty()) columns.assign(found.scales.size(), 1);
    for (size_t c = 0; c < columns.size(); ++c) columns[c] *= found.scales[c];
  }
}

// Divides what computes the inputs, and makes the scales what it is really divided by: the weights of norms are rounded to
// the type of their tensor, and the matrices can make up for that.
void LayerEdits::scale_producer(const FoldPoint& point, std::vector<float>& scales) {
  const auto is_weight = [&](const SourceTensor& t) { return !t.is_bias && has_use(t, point.producer); };
  const auto at = std::ranges::find_if(source_.tensors, is_weight);
  const auto index = static_cast<size_t>(at - source_.tensors.begin());
  if (point.is_norm) {
    const FloatMatrix before = read_source(source_, *at);
    const float added = use_of(*at, point.producer).change == Change::kPlusOne ? 1.0f : 0.0f;
    TensorEdit& edit = edits_[index];
    edit.values = before.values;
    for (size_t i = 0; i < scales.size(); ++i) {
      const float factor = before.values[i] + added, value = rounded_to(at->type, factor / scales[i] - added);
      const float divided_by = factor / (value + added);
      const bool is_usable = std::isfinite(divided_by) && divided_by > 0 && std::isfinite(value);
      scales[i] = is_usable ? divided_by : 1;
      if (is_usable) edit.values[i] = value;
    }
  }
  for (size_t i = 0; i < source_.tensors.size(); ++i) {
    const SourceTensor& tensor = source_.tensors[i];
    if (!has_use(tensor, point.producer) || (point.is_norm && !tensor.is_bias)) continue;
    std::vector<float>& rows = edits_[i].rows;
    rows.resize(static_cast<size_t>(tensor.shape.front()), 1);
    const SourceTensor::Use& use = use_of(tensor, point.producer);
    // Of inputs that share a factor, the first counts.
    std::vector<bool> is_done(rows.size());
    for (size_t c = 0; c < scales.size(); ++c) {
      const int output = point.tied.empty() ? static_cast<int>(c) : point.tied[c];
      const auto row = static_cast<size_t>(point.is_norm ? output : use.place.row(output));
      if (!is_done[row]) rows[row] /= scales[c];
      is_done[row] = true;
    }
  }
}

void apply(const TensorEdit& edit, FloatMatrix& to) {
  if (!edit.values.empty()) {
    assert(edit.values.size() == to.values.size());
    to.values = edit.values;
  }
  const auto cols = static_cast<size_t>(to.cols);
  for (size_t i = 0; i < to.values.size(); ++i) {
    if (!edit.columns.empty()) to.values[i] *= edit.columns[i % cols];
    // A vector is one row: its elements are the rows.
    if (!edit.rows.empty()) to.values[i] *= edit.rows[to.rows == 1 ? i : i / cols];
  }
}

}  // namespace quire
