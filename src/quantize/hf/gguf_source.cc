#include "quantize/hf/gguf_source.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "model/convert/settings.h"
#include "model/families.h"
#include "model/tensor_finder.h"
#include "model/weights.h"
#include "quantize/hf/gguf_tokenizer.h"

namespace quire {
namespace {

// Architectures whose tensors and settings are the same in both kinds of files but for names and the order of rows.
struct Twin {
  std::string_view gguf;  // general.architecture
  std::string_view family, model_type, class_name;
};
constexpr Twin kTwins[] = {{"llama", "llama", "llama", "LlamaForCausalLM"},
                           {"qwen2", "qwen2", "qwen2", "Qwen2ForCausalLM"},
                           {"qwen3", "qwen3", "qwen3", "Qwen3ForCausalLM"}};

const Twin& twin_of(const Checkpoint& checkpoint) {
  const std::string_view architecture = find_family(checkpoint).gguf_architecture;
  const auto* found = std::ranges::find(kTwins, architecture, &Twin::gguf);
  if (found != std::end(kTwins)) return *found;
  std::vector<std::string_view> names;
  for (const Twin& twin : kTwins) names.push_back(twin.gguf);
  throw unsupported(
      "{}: a GGUF file of architecture '{}' cannot be written as a Hugging Face directory yet; these can: {}",
      checkpoint.file(), architecture, fmt::join(names, ", "));
}

// Row i of queries and keys in the order of Hugging Face's files, where the halves of a head rotate together, is this row of
// a GGUF file, where neighbours do.
std::vector<int32_t> neighbours_to_halves(int rows, int head, int rotated) {
  std::vector<int32_t> order;
  for (int i = 0; i < rows; ++i) {
    const int j = i % head, half = rotated / 2;
    order.push_back(j >= rotated ? i : i - j + (j < half ? 2 * j : 2 * (j - half) + 1));
  }
  return order;
}

class PlanTwins : public TensorVisitor {
 public:
  PlanTwins(const Checkpoint& checkpoint, const ModelConfig& config, const Family& target)
      : checkpoint_(checkpoint),
        config_(config),
        finder_(checkpoint, config, spelling_of(checkpoint)),
        target_(target) {}

  void matrix(const Slot& slot, int rows, int cols, Linear&) override {
    const Source from = finder_.source_of(slot), to = find_source(config_, slot, FileKind::kHf, target_.hf);
    const TensorView& view = get(from.name);
    if (from.stacked || from.rows > 0 || from.transposed || view.shape.size() != 2)
      throw unsupported("{}: tensor {} holds several matrices, which cannot be taken apart yet", checkpoint_.file(),
                        from.name);
    SourceTensor tensor{.name = to.name, .type = float_type(view.type), .shape = view.shape};
    tensor.from = {&view, 0, 1, rows, cols, false, nullptr};
    tensor.uses = {{.slot = slot, .place = to, .rows = rows, .is_matrix = true}};
    tensor.row_order = order_of(slot, rows);
    tensors.push_back(std::move(tensor));
    if (const TensorView* bias = finder_.find(bias_name(from)))
      add_vector(slot, *bias, bias_name(to), rows, true, order_of(slot, rows));
  }
  void vector(const Slot& slot, const std::vector<int>& shape, Vector&, Change) override {
    const Source from = finder_.source_of(slot), to = find_source(config_, slot, FileKind::kHf, target_.hf);
    add_vector(slot, get(from.name), to.name, shape.front(), false, {});
  }
  void bias(const Slot& slot, int size, Vector&) override {
    const Source from = finder_.source_of(slot), to = find_source(config_, slot, FileKind::kHf, target_.hf);
    add_vector(slot, get(bias_name(from)), bias_name(to), size, true, {});
  }

  std::vector<SourceTensor> tensors;

 private:
  static TensorType float_type(TensorType type) {
    return type == TensorType::F32 || type == TensorType::BF16 ? type : TensorType::F16;
  }

  std::vector<int32_t> order_of(const Slot& slot, int rows) const {
    if (slot.tensor != Tensor::kQ && slot.tensor != Tensor::kK) return {};
    if (config_.ropes.empty() || config_.ropes[0].kind == RopeKind::kHalves) return {};
    const auto& attention = std::get<Attention>(config_.layers[static_cast<size_t>(slot.layer)].mixer);
    return neighbours_to_halves(rows, attention.key_dim, config_.ropes[0].dim);
  }

  // As a matrix of one column where rows have another order, so that they can be moved.
  void add_vector(const Slot& slot, const TensorView& view, std::string name, int size, bool is_bias,
                  std::vector<int32_t> order) {
    SourceTensor tensor{.name = std::move(name), .type = float_type(view.type), .shape = {static_cast<uint64_t>(size)}};
    const bool is_ordered = order.empty();
    tensor.from = {&view, 0, 1, is_ordered ? 1 : size, is_ordered ? size : 1, false, nullptr};
    tensor.row_order = std::move(order);
    tensor.uses = {{.slot = slot, .place = {}, .rows = size}};
    tensor.is_bias = is_bias;
    tensors.push_back(std::move(tensor));
  }

  const TensorView& get(const std::string& name) const { return *finder_.find(name); }

  const Checkpoint& checkpoint_;
  const ModelConfig& config_;
  const TensorFinder finder_;
  const Family& target_;
};

// The shortest decimal number that reads back as the same float32.
double as_decimal(float x) { return std::stod(fmt::format("{}", x)); }

Json config_of(const Twin& twin, const ModelConfig& c, TensorType float_type, bool has_biases) {
  const auto& attention = std::get<Attention>(c.layers[0].mixer);
  const auto& mlp = std::get<Mlp>(c.layers[0].ffn);
  Json config = {{"architectures", {twin.class_name}},
                 {"model_type", twin.model_type},
                 {"hidden_size", c.hidden},
                 {"intermediate_size", mlp.size},
                 {"num_hidden_layers", c.layers.size()},
                 {"num_attention_heads", attention.heads},
                 {"num_key_value_heads", attention.kv_heads},
                 {"head_dim", attention.key_dim},
                 {"vocab_size", c.vocab},
                 {"max_position_embeddings", c.max_positions},
                 {"rms_norm_eps", as_decimal(c.output_norm.epsilon)},
                 {"rope_theta", c.ropes.empty() ? 10000.0 : c.ropes[0].theta},
                 {"hidden_act", "silu"},
                 {"tie_word_embeddings", c.tied_output},
                 {"torch_dtype", float_type == TensorType::F16    ? "float16"
                                 : float_type == TensorType::BF16 ? "bfloat16"
                                                                  : "float32"}};
  if (twin.family != "qwen2") config["attention_bias"] = has_biases;
  if (!c.ropes.empty() && c.ropes[0].scaling == RopeConfig::Scaling::kLinear)
    config["rope_scaling"] = {{"rope_type", "linear"}, {"factor", c.ropes[0].factor}};
  if (c.bos != kNoToken) config["bos_token_id"] = c.bos;
  if (!c.eos.empty()) config["eos_token_id"] = c.eos.size() == 1 ? Json(c.eos.front()) : Json(c.eos);
  return config;
}

}  // namespace

ModelSource open_gguf_source(const Checkpoint& checkpoint) {
  const Twin& twin = twin_of(checkpoint);
  const Family& target = **std::ranges::find(families(), twin.family, &Family::name);
  ModelSource source;
  source.checkpoint = &checkpoint;
  source.file = checkpoint.file();
  source.config = read_model_config(checkpoint);
  check_weights(checkpoint, source.config);
  const LayerSpec& layer = source.config.layers[0];
  if (!std::holds_alternative<Attention>(layer.mixer) || !std::holds_alternative<Mlp>(layer.ffn))
    throw unsupported("{}: the layers have experts, which cannot be written as a Hugging Face directory yet",
                      source.file);
  PlanTwins plan(checkpoint, source.config, target);
  Weights unused;
  visit_tensors(source.config, unused, plan);
  source.tensors = std::move(plan.tensors);
  source.float_type = main_float_type(source.tensors);
  const bool has_biases = std::ranges::any_of(source.tensors, &SourceTensor::is_bias);
  source.config_json = config_of(twin, source.config, source.float_type, has_biases);
  // What config.json says must be the same model.
  const HfConfig files{.config = JsonField(source.config_json, "config.json")};
  const auto written = read_model_config(files, source.file);
  if (const std::string what = difference_between(*written, source.config); !what.empty())
    throw unsupported("{}: this model cannot be written as a Hugging Face directory: config.json would lose its {}",
                      source.file, what);
  const bool was_quantized = std::ranges::any_of(
      checkpoint.tensors(), [](const TensorView& view) { return info(view.type).block_elements > 1; });
  if (was_quantized)
    source.warnings.push_back(
        "the weights are quantized already; they are dequantized first, so what was lost stays lost");
  GgufTokenizerFiles files_of_tokenizer = tokenizer_files(checkpoint, source.config);
  source.texts = std::move(files_of_tokenizer.texts);
  for (std::string& warning : files_of_tokenizer.warnings) source.warnings.push_back(std::move(warning));
  return source;
}

}  // namespace quire
