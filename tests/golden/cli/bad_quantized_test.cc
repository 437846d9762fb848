// Quantized Hugging Face directories that lack something or are damaged: as bad_files_test.cc.

#include <cmath>
#include <cstring>
#include <numeric>

#include "golden/cli/refusals.h"
#include "unit/model/edited_model.h"
#include "unit/model/transformed_model.h"

namespace quire {
namespace {

using testing::EditedModel;
using testing::EditedTensor;
using testing::expect_refused;
using testing::kBf16Nan;
using testing::kF16Nan;
using testing::message_of_loading;
using testing::SeenBy;

using Edit = std::function<void(EditedModel&)>;

struct Case {
  const char* what;
  const char* model;
  Edit edit;
  const char* message;
  SeenBy seen_by = SeenBy::kBoth;
};

std::string folder_of(const char* model) { return std::string("../formats/hf-models/") + model; }

Edit without(const std::string& tensor) {
  return [=](EditedModel& m) { ASSERT_EQ(m.tensors.erase(tensor), 1u) << tensor; };
}
template <class T>
Edit with_value(const std::string& tensor, size_t element, T value) {
  return [=](EditedModel& m) {
    std::string& bytes = m.tensors.at(tensor).bytes;
    ASSERT_LE((element + 1) * sizeof value, bytes.size()) << tensor;
    std::memcpy(bytes.data() + element * sizeof value, &value, sizeof value);
  };
}
// `dimension` becomes `size`.
Edit cut(const std::string& tensor, size_t dimension, uint64_t size) {
  return [=](EditedModel& m) {
    EditedTensor& t = m.tensors.at(tensor);
    t.bytes.resize(t.bytes.size() / t.shape[dimension] * size);
    t.shape[dimension] = size;
  };
}
Edit with_setting(const char* key, const nlohmann::json& value) {
  return [=](EditedModel& m) { m.config["quantization_config"][key] = value; };
}
Edit as_float(const std::string& module) {
  return [=](EditedModel& m) {
    EditedTensor& t = m.tensors.at(module + ".weight");
    t.type = "BF16";
    t.bytes.assign(t.bytes.size() * 2, '\0');
    m.tensors.erase(module + ".weight_scale");
  };
}

std::vector<Case> cases() {
  const std::string first = "model.layers.0.", second = "model.layers.1.", q = first + "self_attn.q_proj",
                    up = second + "mlp.up_proj", kv = second + "self_attn.kv_b_proj", experts = first + "mlp.experts.",
                    w3 = second + "block_sparse_moe.experts.2.w3";
  return {
      {"GPTQ without zero points", "llama-gptq-orders", without(q + ".qzeros"),
       "M: tensor model.layers.0.self_attn.q_proj.qzeros is missing; the quantized module "
       "model.layers.0.self_attn.q_proj needs it"},
      {"GPTQ without scales", "llama-gptq-orders", without(up + ".scales"),
       "M: tensor model.layers.1.mlp.up_proj.scales is missing; the quantized module model.layers.1.mlp.up_proj needs "
       "it"},
      {"act-order without g_idx", "llama-gptq-orders", without(q + ".g_idx"),
       "M: tensor model.layers.0.self_attn.q_proj.g_idx is missing; the quantized module "
       "model.layers.0.self_attn.q_proj needs it"},
      {"GPTQ without codes", "llama-gptq-orders", without(q + ".qweight"),
       "M: tensor model.layers.0.self_attn.q_proj.weight is missing"},
      {"g_idx of an unknown group", "llama-gptq-orders", with_value(q + ".g_idx", 5, 9),
       "M: tensor model.layers.0.self_attn.q_proj.g_idx has input 5 in group 9, but there are 2 groups of 32"},
      {"g_idx of uneven groups", "llama-gptq-orders",
       [=](EditedModel& m) { m.tensors.at(up + ".g_idx").bytes.assign(64 * 4, '\0'); },
       "M: tensor model.layers.1.mlp.up_proj.g_idx has 64 inputs in group 0, expected 32"},
      {"g_idx that is too short", "llama-gptq-orders", cut(q + ".g_idx", 0, 32),
       "M: tensor model.layers.0.self_attn.q_proj.g_idx has shape [32], expected [64]"},
      {"g_idx that is not announced", "llama-gptq-orders", with_setting("desc_act", false),
       "M: model.layers.0.self_attn.q_proj.weight has an order of inputs (g_idx), but config.json has neither desc_act "
       "nor actorder"},
      {"a NaN among GPTQ's scales", "llama-gptq-orders", with_value(up + ".scales", 128 + 7, kF16Nan),
       "M: tensor model.layers.1.mlp.up_proj.scales has the scale nan for output 7; the file is damaged",
       SeenBy::kLoading},
      {"GPTQ of 5 bits", "llama-gptq-orders", with_setting("bits", 5),
       "M/config.json: quantization_config.bits: 5 is not supported for gptq; use 2, 3, 4 or 8"},
      {"an unknown method", "llama-gptq-orders", with_setting("quant_method", "quip"),
       "M/config.json: quantization_config.quant_method: \"quip\" is not supported; Quire reads gptq, awq, "
       "compressed-tensors, fp8, bitsandbytes, mxfp4, modelopt, auto-round, mlx, torchao, hqq, quark"},
      {"an expert whose halves differ in their order", "mixtral-gptq",
       [=](EditedModel& m) {
         auto& order = m.tensors.at(w3 + ".g_idx").bytes;
         std::reverse(order.begin(), order.end());  // little numbers: their bytes move by three
         std::rotate(order.begin(), order.begin() + 3, order.end());
       },
       "M: layer 1: the gate and up projections must have one transform of their inputs (g_idx, pre_quant_scale, "
       "transform_config)"},
      {"codes of AWQ that are too few", "tiny128-awq", cut(q + ".qweight", 1, 8),
       "M: tensor model.layers.0.self_attn.q_proj.qweight has shape [128, 8], expected [128, 16]"},
      {"kv_b_proj without scales", "deepseek-v3-fp8", without(kv + ".weight_scale_inv"),
       "M: tensor model.layers.1.self_attn.kv_b_proj.weight_scale_inv is missing; the quantized module "
       "model.layers.1.self_attn.kv_b_proj needs it"},
      {"scales of kv_b_proj that are too few", "deepseek-v3-fp8", cut(kv + ".weight_scale_inv", 0, 3),
       "M: tensor model.layers.1.self_attn.kv_b_proj.weight_scale_inv has shape [3, 2], expected [4, 2]"},
      {"a NaN in kv_b_proj", "deepseek-v3-fp8", with_value(kv + ".weight", 3 * 64 + 5, uint8_t{0x7F}),
       "M: tensor model.layers.1.self_attn.kv_b_proj.weight has the value nan for output 3; the file is damaged",
       SeenBy::kLoading},
      {"kv_b_proj with a g_idx of uneven groups", "deepseek-v3-gptq",
       [=](EditedModel& m) { m.tensors.at(kv + ".g_idx").bytes.assign(64 * 4, '\0'); },
       "M: tensor model.layers.1.self_attn.kv_b_proj.g_idx has 64 inputs in group 0, expected 32"},
      {"FP8 with an infinite scale", "qwen3-moe-fp8", with_value(q + ".weight_scale_inv", 3, INFINITY),
       "M: tensor model.layers.0.self_attn.q_proj.weight_scale_inv has the scale inf for output 32; the file is "
       "damaged",
       SeenBy::kLoading},
      {"FP8 with blocks of 48", "qwen3-moe-fp8", with_setting("weight_block_size", {32, 48}),
       "M/config.json: quantization_config.weight_block_size[1]: 48 is not supported for fp8; use 16 or a multiple of "
       "32"},
      {"FP8 experts without scales", "qwen3-moe-fp8", without(experts + "3.down_proj.weight_scale_inv"),
       "M: tensor model.layers.0.mlp.experts.3.down_proj.weight_scale_inv is missing; the quantized module "
       "model.layers.0.mlp.experts.3.down_proj needs it"},
      {"MXFP4 without scales", "gpt-oss-mxfp4", without(experts + "gate_up_proj_scales"),
       "M: tensor model.layers.0.mlp.experts.gate_up_proj_scales is missing; the quantized module "
       "model.layers.0.mlp.experts.gate_up_proj needs it"},
      {"MXFP4 with a NaN for a scale", "gpt-oss-mxfp4",
       with_value(experts + "down_proj_scales", 64 * 2 + 5, uint8_t{0xFF}),
       "M: tensor model.layers.0.mlp.experts.down_proj_scales has the scale code 255 for output 2; the file is damaged",
       SeenBy::kLoading},
      {"MXFP4 of fewer experts", "gpt-oss-mxfp4", cut(experts + "down_proj_blocks", 0, 3),
       "M: tensor model.layers.0.mlp.experts.down_proj_blocks has shape [3, 64, 2, 16], expected [4, 64, 2, 16]"},
      {"NVFP4 without the matrix's scale", "qwen3-nvfp4", without(q + ".weight_global_scale"),
       "M: tensor model.layers.0.self_attn.q_proj.weight_global_scale is missing; the quantized module "
       "model.layers.0.self_attn.q_proj needs it"},
      {"NVFP4 with a matrix's scale of 0", "qwen3-nvfp4", with_value(q + ".weight_global_scale", 0, 0.0f),
       "M: tensor model.layers.0.self_attn.q_proj.weight_global_scale is 0, expected a positive number"},
      {"W8A8 with scales of another shape", "llama-w8a8", cut(q + ".weight_scale", 0, 32),
       "M: tensor model.layers.0.self_attn.q_proj.weight_scale has shape [32, 1], expected [64, 1] or [64]"},
      {"a NaN among W8A8's scales", "llama-w8a8", with_value(q + ".weight_scale", 63, kBf16Nan),
       "M: tensor model.layers.0.self_attn.q_proj.weight_scale has the scale nan for output 63; the file is damaged",
       SeenBy::kLoading},
      {"a zero point of symmetric weights", "llama-w8a8",
       [=](EditedModel& m) {
         m.tensors[q + ".weight_zero_point"] = {"I8", {64, 1}, std::string(64, '\0')};
       },
       "M: unexpected tensor model.layers.0.self_attn.q_proj.weight_zero_point: Quire's llama architecture does not "
       "use it"},
      {"a gate without codes", "llama-w8a8", as_float(first + "mlp.gate_proj"),
       "M: layer 0: the gate and up projections must be both quantized or both unquantized"},
      {"codes that no group targets", "llama-w8a8",
       [](EditedModel& m) { m.config["quantization_config"]["config_groups"]["group_0"]["targets"] = {"re:.*attn.*"}; },
       "M: tensor model.layers.0.mlp.gate_proj.weight is quantized, but no group of config_groups in config.json "
       "targets model.layers.0.mlp.gate_proj"},
      {"LLM.int8 without SCB", "llama-llm-int8", without(up + ".SCB"),
       "M: tensor model.layers.1.mlp.up_proj.SCB is missing; the quantized module model.layers.1.mlp.up_proj needs it"},
      {"LLM.int8 in tiles", "llama-llm-int8", with_value(q + ".weight_format", 0, uint8_t{2}),
       "M: tensor model.layers.0.self_attn.q_proj.weight_format is 2, expected 0 for rows in order"},
      {"NF4 without its state", "tiny128-bnb-nf4", without(q + ".weight.quant_state.bitsandbytes__nf4"),
       "M: tensor model.layers.0.self_attn.q_proj.weight.quant_state.bitsandbytes__nf4 (or __fp4) is missing; the "
       "quantized module model.layers.0.self_attn.q_proj needs it"},
      {"ModelOpt's NVFP4 without the matrix's scale", "modelopt-nvfp4-kv", without(q + ".weight_scale_2"),
       "M: tensor model.layers.0.self_attn.q_proj.weight_scale_2 is missing; the quantized module "
       "model.layers.0.self_attn.q_proj needs it"},
      {"ModelOpt's factors of too few inputs", "modelopt-awq", cut(first + "self_attn.o_proj.pre_quant_scale", 0, 32),
       "M: tensor model.layers.0.self_attn.o_proj.pre_quant_scale has type BF16 and shape [32], expected floats of "
       "shape "
       "[64]"},
      {"layers that ModelOpt's settings lack", "modelopt-nvfp4-kv",
       [](EditedModel& m) {
         m.config["quantization_config"]["quant_algo"] = "MIXED_PRECISION";
         m.config["quantization_config"]["quantized_layers"]["lm_head"] = {{"quant_algo", "FP8"}};
       },
       "M: tensor model.layers.0.self_attn.q_proj.weight is quantized, but the settings of modelopt have none for "
       "model.layers.0.self_attn.q_proj"},
      {"auto-round of other bits", "auto-round-mixed", with_setting("extra_config", nlohmann::json::object()),
       "M: tensor model.layers.0.self_attn.k_proj.qweight has shape [4, 32], expected [8, 32]"},
      {"MLX without biases", "mlx-4bit-mixed", without(first + "mlp.gate_proj.biases"),
       "M: tensor model.layers.0.mlp.gate_proj.biases is missing; the quantized module model.layers.0.mlp.gate_proj "
       "needs it"},
      {"MLX of fewer experts", "mlx-experts", cut(first + "mlp.switch_mlp.down_proj.weight", 0, 3),
       "M: tensor model.layers.0.mlp.switch_mlp.down_proj.weight has shape [3, 64, 4], expected [4, 64, 4]"},
      {"MLX of other bits", "mlx-4bit-mixed",
       [=](EditedModel& m) { m.config["quantization"][first + "mlp.up_proj"]["bits"] = 4; },
       "M: tensor model.layers.0.mlp.up_proj.weight has shape [128, 16], expected [128, 8]"},
      {"torchao without scales", "torchao-int4-plain", without(q + "._weight_scale"),
       "M: tensor model.layers.0.self_attn.q_proj._weight_scale is missing; the quantized module "
       "model.layers.0.self_attn.q_proj needs it"},
      {"HQQ of another group size", "hqq-4bit-g64", with_value(q + ".group_size", 0, int32_t{32}),
       "M: tensor model.layers.0.self_attn.q_proj.W_q has shape [32, 64], expected [64, 32]"},
      {"Quark with an infinite scale", "quark-uint4-mixed", with_value(q + ".weight_scale", 64 + 3, uint16_t{0x7F80}),
       "M: tensor model.layers.0.self_attn.q_proj.weight_scale has the scale inf for output 3; the file is damaged",
       SeenBy::kLoading},
      {"packed integers without scales", "tiny128-ct-w4a16", without(q + ".weight_scale"),
       "M: tensor model.layers.0.self_attn.q_proj.weight_scale is missing; the quantized module "
       "model.layers.0.self_attn.q_proj needs it"},
  };
}

void expect_all_refused(const std::vector<Case>& all) {
  EXPECT_GE(all.size(), 10u);
  for (const Case& c : all) {
    SCOPED_TRACE(c.what);
    EditedModel model(folder_of(c.model));
    c.edit(model);
    expect_refused(model.write(), c.message, c.seen_by);
  }
}
TEST(BadQuantizedFiles, AreRefused) { expect_all_refused(cases()); }

// The small Llama, its inputs rotated by a matrix in the file, then changed.
Edit rotated(const Edit& edit) {
  return [=](EditedModel& m) {
    testing::RotatedModel{.type = "random-hadamard", .tensor = "model.layers.0.self_attn.q_proj"}.edit(m);
    edit(m);
  };
}
Edit with_rotation(const char* key, const nlohmann::json& value) {
  return rotated(
      [=](EditedModel& m) { m.config["quantization_config"]["transform_config"]["config_groups"]["R"][key] = value; });
}
Edit with_use(const char* key, const nlohmann::json& value) {
  return rotated([=](EditedModel& m) {
    m.config["quantization_config"]["transform_config"]["config_groups"]["R"]["apply"][0][key] = value;
  });
}
Edit multiplied(const Edit& edit) {
  return [=](EditedModel& m) {
    testing::multiply_inputs(m);
    edit(m);
  };
}

std::vector<Case> transform_cases() {
  const char* const llama = "../../models/llama";
  const std::string matrix = "model.layers.0.self_attn.q_proj.R_input.weight",
                    factors = "model.layers.1.mlp.up_proj.pre_quant_scale";
  return {
      {"rotated outputs", llama, with_use("location", "output"),
       "M/config.json: quantization_config.transform_config.config_groups.R.apply[0].location: \"output\" is not "
       "supported for compressed-tensors; use input, weight_input or weight_output"},
      {"rotated keys", llama, with_use("location", "k_cache"),
       "M/config.json: quantization_config.transform_config.config_groups.R.apply[0].location: \"k_cache\" is not "
       "supported for compressed-tensors; use input, weight_input or weight_output"},
      {"any matrix", llama, with_rotation("type", "random-matrix"),
       "M/config.json: quantization_config.transform_config.config_groups.R.type: \"random-matrix\" is not supported "
       "for compressed-tensors; use hadamard or random-hadamard"},
      {"permuted rows", llama, with_rotation("randomize", true),
       "M/config.json: quantization_config.transform_config.config_groups.R.randomize: true is not supported for "
       "compressed-tensors; use false"},
      {"blocks that do not divide", llama, with_rotation("head_dim", 48),
       "M/config.json: quantization_config.transform_config.config_groups.R.apply[0]: blocks of 48 inputs do not "
       "divide "
       "the 64 of model.layers.0.self_attn.q_proj"},
      {"no matrix", llama, rotated(without(matrix)),
       "M: tensor model.layers.0.self_attn.q_proj.R_input.weight is missing"},
      {"a matrix of numbers", llama, rotated(with_value(matrix, 5, 0.5f)),
       "M: tensor model.layers.0.self_attn.q_proj.R_input.weight has the value 0.5 at index 5; a Hadamard matrix has "
       "only 1 and -1"},
      {"a matrix that is not orthogonal", llama, rotated(with_value(matrix, 16 + 2, -1.0f)),
       "M: tensor model.layers.0.self_attn.q_proj.R_input.weight is no Hadamard matrix: rows 0 and 1 are not "
       "orthogonal"},
      {"two rotations", llama, rotated([](EditedModel& m) {
         auto& groups = m.config["quantization_config"]["transform_config"]["config_groups"];
         groups["S"] = groups["R"];
       }),
       "M/config.json: quantization_config.transform_config.config_groups.S.apply[0]: the inputs of "
       "model.layers.0.self_attn.q_proj are rotated already"},
      {"too few factors", llama, multiplied(cut(factors, 0, 32)),
       "M: tensor model.layers.1.mlp.up_proj.pre_quant_scale has type F32 and shape [32], expected floats of shape "
       "[64]"},
      {"a factor that is no number", llama, multiplied(with_value(factors, 3, NAN)),
       "M: tensor model.layers.1.mlp.up_proj.pre_quant_scale has the value nan at index 3; the file is damaged"},
  };
}
TEST(BadTransforms, AreRefused) { expect_all_refused(transform_cases()); }

TEST(BadQuantizedFiles, StartFromGoodOnes) {
  for (const char* model : {"llama-gptq-orders", "mixtral-gptq", "tiny128-awq", "deepseek-v3-fp8", "gpt-oss-mxfp4"})
    EXPECT_EQ(message_of_loading(EditedModel(folder_of(model)).write()), "accepted") << model;
}

// What inspecting says of the memory is what loading takes, and parameters are weights, not bytes of codes.
TEST(QuantizedFiles, AreInspectedAsTheyAreLoaded) {
  for (const char* name : {"llama-gptq-orders", "llama-w8a8", "llama-llm-int8", "qwen3-nvfp4", "phi3-fp8",
                           "gpt-oss-mxfp4", "deepseek-v3-gptq", "tiny128-bnb-nf4"}) {
    SCOPED_TRACE(name);
    const auto path = golden_dir() / "formats/hf-models" / name;
    const auto report = inspect(path, 10);
    EXPECT_TRUE(report.at("runs").at("ok"));
    EngineOptions o;
    o.model = path.string();
    o.threads = 1;
    o.max_num_seqs = 1;
    const LoadedModel loaded(o);
    EXPECT_EQ(report.at("parameters"), loaded.info.parameters);
    EXPECT_EQ(report.at("quantization"), loaded.info.quantization);
    // All matrices; tokens use half of the experts.
    const Weights& w = loaded.target.weights;
    const uint64_t matrices = w.decode_bytes + w.expert_bytes + w.embedding.weight.bytes(),
                   all = report.at("memory").at("weight_bytes");
    EXPECT_GE(all, matrices);
    EXPECT_LE(all, matrices + matrices / 20);  // norms and biases
  }
}

}  // namespace
}  // namespace quire
