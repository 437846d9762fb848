#include "model/quantized/input_transforms.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "model/quantized/module_tensors.h"
#include "quant/blocks.h"

namespace quire {
namespace {

constexpr std::string_view kFactors = ".pre_quant_scale";

// A matrix that is not Sylvester's is multiplied as it is, which costs as much as a linear of so many outputs.
constexpr int kMostDense = 512;

std::vector<float> numbers(const std::string& file, const TensorView& view, const std::vector<uint64_t>& shape) {
  if (!is_plain(view.type) || view.shape != shape)
    throw invalid("{}: tensor {} has type {} and shape [{}], expected floats of shape [{}]", file, view.name,
                  name(view.type), fmt::join(view.shape, ", "), fmt::join(shape, ", "));
  uint64_t count = 1;
  for (const uint64_t dimension : shape) count *= dimension;
  std::vector<float> values(count);
  dequantize(view.type, view.bytes, values);
  return values;
}

std::vector<float> read_factors(const CheckpointTensors& tensors, const std::string& module, int cols) {
  const TensorView* view = tensors.find(module + std::string(kFactors));
  if (!view) return {};
  std::vector<float> factors = numbers(tensors.file, *view, {static_cast<uint64_t>(cols)});
  const auto bad = std::ranges::find_if(factors, [](float f) { return !std::isfinite(f); });
  if (bad != factors.end())
    throw invalid("{}: tensor {} has the value {} at index {}; the file is damaged", tensors.file, view->name, *bad,
                  bad - factors.begin());
  return factors;
}

// The rotation's matrix. Files keep one copy for all modules that share it.
const TensorView* find_matrix(const RotationRule& rule, const CheckpointTensors& tensors, const std::string& module,
                              uint64_t size) {
  const std::string ending = "." + rule.name + "_input.weight";
  if (const TensorView* own = tensors.find(module + ending)) return own;
  const auto shared = std::ranges::find_if(tensors.all, [&](const TensorView& t) {
    return t.name.ends_with(ending) && t.shape == std::vector<uint64_t>{size, size};
  });
  return shared == tensors.all.end() ? nullptr : tensors.find(std::string(shared->name));
}

Rotation read_rotation(const RotationRule& rule, const CheckpointTensors& tensors, const std::string& module,
                       int cols) {
  const int size = rule.size == 0 ? cols : rule.size;
  if (cols % size != 0)
    throw invalid("{}: blocks of {} inputs do not divide the {} of {}", rule.where, size, cols, module);
  const auto side = static_cast<uint64_t>(size);
  const TensorView* view = find_matrix(rule, tensors, module, side);
  if (!view) {
    if (rule.is_known && (side & (side - 1)) == 0) return Rotation{size, {}, false, {}};
    throw invalid("{}: tensor {}.{}_input.weight is missing", tensors.file, module, rule.name);
  }
  std::vector<float> h = numbers(tensors.file, *view, {side, side});
  const auto is_entry = [](float x) { return x == 1 || x == -1; };
  if (const auto bad = std::ranges::find_if_not(h, is_entry); bad != h.end())
    throw invalid("{}: tensor {} has the value {} at index {}; a Hadamard matrix has only 1 and -1", tensors.file,
                  view->name, *bad, bad - h.begin());
  Rotation rotation = rotation_of(std::move(h), size, rule.inverse);
  if (rotation.matrix.empty()) return rotation;
  if (size > kMostDense)
    throw unsupported(
        "{}: tensor {} is no Hadamard matrix of Sylvester's construction; Quire reads others of up to {} rows",
        tensors.file, view->name, kMostDense);
  for (size_t i = 0; i < side; ++i) {
    for (size_t j = 0; j < i; ++j) {
      float dot = 0;
      for (size_t k = 0; k < side; ++k) dot += rotation.matrix[i * side + k] * rotation.matrix[j * side + k];
      if (dot != 0)
        throw invalid("{}: tensor {} is no Hadamard matrix: rows {} and {} are not orthogonal", tensors.file,
                      view->name, j, i);
    }
  }
  return rotation;
}

// The module as the file spells it: it may have another prefix.
std::string full_name(const FindTensor& find, const std::string& module) {
  if (const TensorView* weight = find(module + ".weight")) return std::string(module_of(weight->name));
  for (const std::string_view ending : kCodeEndings) {
    if (const TensorView* codes = find(module + std::string(ending))) return std::string(module_of(codes->name));
  }
  return module;
}

}  // namespace

bool has_input_factors(const TensorView& tensor) { return tensor.name.ends_with(kFactors); }

InputTransform read_input_transform(const Quantization& quantization, const CheckpointTensors& tensors,
                                    const std::string& module, int cols) {
  InputTransform transform;
  transform.factors = read_factors(tensors, module, cols);
  const std::string spelled = quantization.rotations.empty() ? module : full_name(tensors.find, module);
  for (const RotationRule& rule : quantization.rotations) {
    if (!rule.applies_to(spelled)) continue;
    if (transform.rotation.size != 0)
      throw unsupported("{}: the inputs of {} are rotated already", rule.where, spelled);
    transform.rotation = read_rotation(rule, tensors, module, cols);
  }
  if (!transform.rotation.matrix.empty() && !transform.factors.empty())
    throw unsupported("{}: tensor {}{}: Quire cannot multiply inputs before it rotates them by a matrix of this kind",
                      tensors.file, module, kFactors);
  return transform;
}

}  // namespace quire
