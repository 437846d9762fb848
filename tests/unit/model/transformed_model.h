// The small Llama with transformed inputs: its weights undo the transform, so its logits are those of the model as it is.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <vector>

#include "base/half.h"
#include "unit/model/edited_model.h"

namespace quire::testing {

inline EditedTensor float_tensor(const std::vector<uint64_t>& shape, const std::vector<float>& numbers) {
  return {"F32", shape, {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(float)}};
}

// Weights [outputs, cols] of the modules that `pattern` matches become float32; change(module, row, cols) changes each row.
inline void change_rows(EditedModel& model, const std::string& pattern,
                        const std::function<void(const std::string&, float*, size_t)>& change) {
  const std::regex regex(pattern + "\\.weight");
  for (auto& [name, tensor] : model.tensors) {
    if (!std::regex_match(name, regex)) continue;
    std::vector<float> numbers(tensor.bytes.size() / 2);
    for (size_t i = 0; i < numbers.size(); ++i) {
      uint16_t half;
      std::memcpy(&half, tensor.bytes.data() + 2 * i, 2);
      numbers[i] = bf16_to_f32(half);
    }
    const auto rows = static_cast<size_t>(tensor.shape[0]), cols = static_cast<size_t>(tensor.shape[1]);
    for (size_t row = 0; row < rows; ++row) change(name.substr(0, name.size() - 7), numbers.data() + row * cols, cols);
    tensor = float_tensor(tensor.shape, numbers);
  }
}

// Row i of Sylvester's matrix, column j.
inline float sylvester(size_t i, size_t j) { return std::popcount(i & j) % 2 == 0 ? 1.0f : -1.0f; }

struct RotatedModel {
  std::string type = "hadamard";
  std::string modules = R"(model\.layers\.\d+\..*_proj)";
  size_t size = 16;
  bool inverse = false;
  std::function<float(size_t i, size_t j)> h = sylvester;
  std::string tensor = {};  // the module that has the matrix; empty: none

  void edit(EditedModel& model) const {
    change_rows(model, modules, [&](const std::string&, float* row, size_t cols) {
      const std::vector<float> old(row, row + cols);
      for (size_t k = 0; k < cols; ++k) {
        const size_t begin = k / size * size;
        double sum = 0;
        for (size_t i = 0; i < size; ++i)
          sum += double{old[begin + i]} * static_cast<double>(inverse ? h(k - begin, i) : h(i, k - begin));
        row[k] = static_cast<float>(sum / std::sqrt(static_cast<double>(size)));
      }
    });
    nlohmann::json use = {{"targets", {"re:" + modules + "$"}}, {"location", "input"}, {"inverse", inverse}};
    nlohmann::json weights = use;
    weights["location"] = "weight_input";
    model.config["quantization_config"] = {
        {"quant_method", "compressed-tensors"},
        {"transform_config",
         {{"config_groups", {{"R", {{"type", type}, {"head_dim", size}, {"apply", {use, weights}}}}}}}}};
    if (tensor.empty()) return;
    std::vector<float> numbers;
    for (size_t i = 0; i < size * size; ++i) numbers.push_back(h(i / size, i % size));
    model.tensors[tensor + ".R_input.weight"] = float_tensor({size, size}, numbers);
  }
};

// Every linear of a layer divides its weights by factors that multiply its inputs.
inline void multiply_inputs(EditedModel& model) {
  const auto factor = [](size_t i) { return 0.5f + static_cast<float>(i % 7) / 4; };
  std::map<std::string, size_t> modules;
  change_rows(model, R"(model\.layers\.\d+\..*_proj)", [&](const std::string& module, float* row, size_t cols) {
    for (size_t i = 0; i < cols; ++i) row[i] /= factor(i);
    modules[module] = cols;
  });
  for (const auto& [module, cols] : modules) {
    std::vector<float> factors(cols);
    for (size_t i = 0; i < cols; ++i) factors[i] = factor(i);
    model.tensors[module + ".pre_quant_scale"] = float_tensor({cols}, factors);
  }
  model.config["quantization_config"] = {{"quant_method", "compressed-tensors"}};
}

struct TransformedModel {
  const char* name;
  std::function<void(EditedModel&)> edit;
};
inline std::vector<TransformedModel> transformed_models() {
  const auto signs = [](size_t i) { return i % 3 == 0 ? -1.0f : 1.0f; };
  const RotatedModel known;
  const RotatedModel with_signs{.type = "random-hadamard",
                                .modules = R"(model\.layers\.\d+\..*(q|k|v|gate|up)_proj)",
                                .size = 64,
                                .h = [=](size_t i, size_t j) { return signs(i) * sylvester(i, j); },
                                .tensor = "model.layers.0.self_attn.q_proj"};
  const RotatedModel inverse{.type = "random-hadamard",
                             .modules = R"(model\.layers\.\d+\..*(o|down)_proj)",
                             .size = 32,
                             .inverse = true,
                             .h = [=](size_t i, size_t j) { return signs(i) * sylvester(i, j); },
                             .tensor = "model.layers.1.mlp.down_proj"};
  const RotatedModel other{.type = "random-hadamard",
                           .size = 4,
                           .h = [](size_t i, size_t j) { return sylvester((i + 1) % 4, j); },
                           .tensor = "model.layers.2.mlp.up_proj"};
  return {{"known_rotation", [=](EditedModel& m) { known.edit(m); }},
          {"rotation_with_signs", [=](EditedModel& m) { with_signs.edit(m); }},
          {"inverse_rotation", [=](EditedModel& m) { inverse.edit(m); }},
          {"rotation_of_another_kind", [=](EditedModel& m) { other.edit(m); }},
          {"factors", multiply_inputs}};
}

}  // namespace quire::testing
