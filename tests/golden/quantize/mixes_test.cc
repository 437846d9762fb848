// The types that llama.cpp's mixes give to the tensors of real models (golden/make/make_mixes.py).
#include "quantize/mixes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/files/mapped_file.h"
#include "model/tensors.h"
#include "model/weights.h"
#include "paths.h"

namespace quire {
namespace {

using Json = nlohmann::json;

// What the shape of a model leaves open.
struct Extra {
  std::string_view model;
  int head_dim, expert_size;  // expert_size: 0: no experts
};
constexpr Extra kExtras[] = {
    {"qwen3-0.6b", 128, 0}, {"qwen3-14b", 128, 0}, {"meta-llama-3.1-70b-instruct", 128, 0}, {"glm-4.6v", 128, 1408}};

ModelConfig config_of(const Json& shape, const Extra& extra) {
  ModelConfig c;
  c.hidden = shape["n_embd"], c.vocab = shape["n_vocab"];
  LayerSpec layer;
  layer.mixer = Attention{
      .heads = shape["n_head"], .kv_heads = shape["n_head_kv"], .key_dim = extra.head_dim, .value_dim = extra.head_dim};
  layer.ffn = Mlp{.size = shape["n_ff"]};
  c.layers.assign(shape["n_layer"].get<size_t>(), layer);
  if (extra.expert_size > 0) {
    Moe moe{.routing = {.experts = shape["n_expert"], .used = 8}, .size = extra.expert_size};
    moe.shared_size = extra.expert_size;
    for (size_t i = 1; i < c.layers.size(); ++i) c.layers[i].ffn = moe;  // the first layer has none
  }
  return c;
}

// The matrices of a model as a plan has them.
class Matrices : public TensorVisitor {
 public:
  explicit Matrices(const ModelConfig& config) : config_(config) {}
  void matrix(const Slot& slot, int rows, int cols, Linear&) override {
    if (slot.item > 0) return;
    PlannedTensor tensor{.name = find_source(config_, slot, FileKind::kGguf, {}).name,
                         .type = TensorType::F16,
                         .shape = {static_cast<uint64_t>(rows), static_cast<uint64_t>(cols)},
                         .parts = {},
                         .matrices = {slot.tensor},
                         .layer = slot.layer};
    if (slot.items > 0) tensor.shape.insert(tensor.shape.begin(), static_cast<uint64_t>(slot.items));
    tensors.push_back(std::move(tensor));
  }
  void vector(const Slot&, const std::vector<int>&, Vector&, Change) override {}
  void bias(const Slot&, int, Vector&) override {}

  std::vector<PlannedTensor> tensors;

 private:
  const ModelConfig& config_;
};

TensorType type_of(std::string name) {
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return tensor_type_from_name(name).value();
}

TensorType expected_type(const Json& mix, const PlannedTensor& tensor) {
  std::string spelled = tensor.name;
  if (tensor.layer >= 0) spelled = "blk.{}." + spelled.substr(spelled.find('.', 4) + 1);
  const Json exceptions = mix["exceptions"].value(spelled, Json::object());
  for (const auto& [type, layers] : exceptions.items()) {
    const auto listed = layers.get<std::vector<int>>();
    if (std::ranges::find(listed, tensor.layer) != listed.end()) return type_of(type);
  }
  return type_of(mix["type"]);
}

class GoldenMixes : public testing::TestWithParam<Extra> {};

TEST_P(GoldenMixes, GiveEachTensorTheTypeThatLlamaCppGives) {
  const Json golden = Json::parse(read_text_file(golden_dir() / "quantize/mixes.json"))[std::string(GetParam().model)];
  const ModelConfig config = config_of(golden["shape"], GetParam());
  Matrices matrices(config);
  Weights unused;
  visit_tensors(config, unused, matrices);
  std::vector<PlannedTensor>& tensors = matrices.tensors;
  // llama.cpp asks layer by layer, and sorts a layer's tensors by name.
  std::ranges::stable_sort(tensors, {}, [](const PlannedTensor& t) { return std::pair(t.layer, t.name); });
  size_t compared = 0;
  for (const auto& [name, mix] : golden["mixes"].items()) {
    MixedTypes types(find_mix(name), config, "llama", false, tensors);
    for (const PlannedTensor& tensor : tensors) {
      if (!MixedTypes::may_change(tensor)) continue;
      const TensorType type = fitting_type(types.type_of(tensor), tensor.cols());
      EXPECT_EQ(quire::name(type), quire::name(expected_type(mix, tensor))) << name << " " << tensor.name;
      ++compared;
    }
  }
  EXPECT_GT(compared, 30u * 28 * 7);
}

INSTANTIATE_TEST_SUITE_P(Models, GoldenMixes, testing::ValuesIn(kExtras), [](const auto& test) {
  std::string name(test.param.model);
  std::erase_if(name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; });
  return name;
});

}  // namespace
}  // namespace quire
