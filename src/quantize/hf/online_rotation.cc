#include "quantize/hf/online_rotation.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "ops/input_transform.h"
#include "quant/encode.h"

namespace quire {
namespace {

std::string rotation_name(int size) { return fmt::format("down_{}", size); }

}  // namespace

int rotatable_block(const SourceTensor& tensor, const HfMethod& method) {
  constexpr int kSmallest = 16;   // fewer mix too little
  constexpr int kLargest = 1024;  // more hardly gain, and libraries store the square of it
  if (method.layout != "compressed-tensors" || !method.rounds_inputs || tensor.uses.size() != 1 ||
      tensor.uses.front().slot.tensor != Tensor::kDown)
    return 0;
  const int block = 1 << std::countr_zero(static_cast<unsigned>(tensor.from.cols));
  return block < kSmallest ? 0 : std::min(block, kLargest);
}

void rotate_inputs(int size, FloatMatrix& weights) {
  InputTransform transform;
  transform.rotation.size = size;
  for (int r = 0; r < weights.rows; ++r)
    transform_row(transform, weights.row(r).data(), weights.cols, weights.row(r).data());
}

std::string rotation_tensor_name(int size, const std::vector<std::string>& modules) {
  return fmt::format("{}.{}_input.weight", modules.front(), rotation_name(size));
}

std::vector<std::byte> rotation_tensor(int size, TensorType type) {
  std::vector<float> matrix;
  for (unsigned i = 0; i < static_cast<unsigned>(size); ++i) {
    for (unsigned j = 0; j < static_cast<unsigned>(size); ++j)
      matrix.push_back(std::popcount(i & j) % 2 == 0 ? 1.0f : -1.0f);
  }
  std::vector<std::byte> bytes(matrix.size() * info(type).block_bytes);
  static_cast<void>(encode_row(type, matrix, {}, bytes));  // any float type holds 1 and -1
  return bytes;
}

Json transform_config(const RotatedModules& modules) {
  Json groups = Json::object();
  for (const auto& [size, names] : modules) {
    const Json targets = names;
    const auto apply = [&targets](const char* location, bool inverse) {
      return Json{{"targets", targets}, {"location", location}, {"inverse", inverse}, {"ignore", Json::array()}};
    };
    groups[rotation_name(size)] = {
        {"type", "hadamard"}, {"apply", {apply("input", false), apply("weight_input", true)}},
        {"randomize", false}, {"requires_grad", false},
        {"head_dim", size},   {"precision", "torch.float64"}};
  }
  Json config = Json::object();
  config["config_groups"] = std::move(groups);
  return config;
}

}  // namespace quire
