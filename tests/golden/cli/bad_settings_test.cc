// Settings that are wrong, missing or contradictory: loading refuses them with a message that names the file and the
// setting or tensor, and inspecting says the same.

#include "golden/cli/refusals.h"
#include "unit/model/edited_model.h"
#include "unit/model/tiny_gguf.h"

namespace quire {
namespace {

using nlohmann::json;
using testing::EditedModel;
using testing::expect_refused;
using testing::GgufFile;
using testing::message_of_inspecting;
using testing::message_of_loading;
using testing::SeenBy;
using testing::shortened;
using testing::TinyGguf;

// ---- config.json

struct Setting {
  const char* model;
  json changes;  // merged into config.json; null removes a key
  const char* message;
};

const Setting kSettings[] = {
    {"llama", {{"num_hidden_layers", nullptr}}, "M/config.json: num_hidden_layers is missing"},
    {"llama",
     {{"num_hidden_layers", 0}},
     "M/config.json: num_hidden_layers: the number of layers is 0; it must be 1 to 1024"},
    {"llama",
     {{"num_hidden_layers", -1}},
     "M/config.json: num_hidden_layers: the number of layers is -1; it must be 1 to 1024"},
    {"llama",
     {{"num_hidden_layers", "3"}},
     "M/config.json: num_hidden_layers: expected an integer from -2147483648 to 2147483647, found \"3\""},
    {"llama",
     {{"num_hidden_layers", 2.5}},
     "M/config.json: num_hidden_layers: expected an integer from -2147483648 to 2147483647, found 2.5"},
    {"llama", {{"num_hidden_layers", 4}}, "M: tensor model.layers.3.input_layernorm.weight is missing"},
    {"llama",
     {{"num_hidden_layers", 2}},
     "M: unexpected tensor model.layers.2.input_layernorm.weight: Quire's llama architecture does not use it"},
    {"llama", {{"hidden_size", nullptr}}, "M/config.json: hidden_size is missing"},
    {"llama", {{"hidden_size", 0}}, "M: the hidden size is 0; it must be 1 to 131072"},
    {"llama", {{"hidden_size", 128}}, "M: tensor model.embed_tokens.weight has shape [320, 64], expected [320, 128]"},
    {"llama", {{"num_attention_heads", 0}}, "M: the number of attention heads is 0; it must be 1 to 1024"},
    {"llama",
     {{"num_attention_heads", 6}},
     "M: tensor model.layers.0.self_attn.q_proj.weight has shape [64, 64], expected [96, 64]"},
    {"llama", {{"num_key_value_heads", 3}}, "M: 4 attention heads are not a multiple of 3 KV heads"},
    {"llama", {{"num_key_value_heads", 8}}, "M: the number of KV heads is 8; it must be 1 to 4"},
    {"llama", {{"num_key_value_heads", 0}}, "M: the number of KV heads is 0; it must be 1 to 4"},
    {"llama", {{"head_dim", 15}}, "M: rotary size 15 must be even"},
    {"llama", {{"head_dim", 0}}, "M: the head size is 0; it must be 2 to 576"},
    {"llama", {{"head_dim", 1 << 20}}, "M: the head size is 1048576; it must be 2 to 576"},
    {"llama", {{"vocab_size", nullptr}}, "M/config.json: vocab_size is missing"},
    {"llama", {{"vocab_size", 0}}, "M: the vocabulary size is 0; it must be 1 to 1048576"},
    {"llama", {{"vocab_size", 321}}, "M: tensor model.embed_tokens.weight has shape [320, 64], expected [321, 64]"},
    {"llama", {{"intermediate_size", -1}}, "M: the feed-forward size is -1; it must be 1 to 1048576"},
    {"llama",
     {{"intermediate_size", 161}},
     "M: tensor model.layers.0.mlp.gate_proj.weight has shape [160, 64], expected [161, 64]"},
    {"llama", {{"rms_norm_eps", -1}}, "M: the norm's epsilon is -1; it must be at least 0 and below 1"},
    {"llama", {{"rms_norm_eps", 2}}, "M: the norm's epsilon is 2; it must be at least 0 and below 1"},
    {"llama", {{"max_position_embeddings", 0}}, "M: the context length is 0; it must be 1 to 134217728"},
    {"llama",
     {{"hidden_act", "tanh"}},
     "M/config.json: hidden_act: 'tanh' is not supported; supported: silu, gelu, gelu_new, gelu_pytorch_tanh, relu, "
     "relu2"},
    {"llama", {{"hidden_act", 5}}, "M/config.json: hidden_act: expected a string, found 5"},
    {"llama",
     {{"eos_token_id", "x"}},
     "M/config.json: eos_token_id: expected an integer from -2147483648 to 2147483647, found \"x\""},
    {"llama", {{"architectures", nullptr}}, "M/config.json: architectures is missing"},
    {"llama", {{"architectures", json::array()}}, "M/config.json: architectures is empty"},
    {"llama",
     {{"architectures", "LlamaForCausalLM"}},
     "M/config.json: architectures: expected an array, found \"LlamaForCausalLM\""},
    {"llama",
     {{"rope_parameters", {{"rope_type", "spiral"}}}},
     "M/config.json: rope_parameters.rope_type: rope scaling 'spiral' is not supported; supported: default, linear, "
     "dynamic, llama3, yarn, longrope, proportional"},
    {"llama", {{"rope_parameters", {{"rope_theta", 0}}}}, "M: rope theta is 0; it must be above 1"},
    {"llama",
     {{"rope_parameters", {{"rope_theta", "big"}}}},
     "M/config.json: rope_parameters.rope_theta: expected a number, found \"big\""},
    {"llama", {{"rope_parameters", {{"rope_type", "linear"}}}}, "M/config.json: rope_parameters.factor is missing"},
    {"llama",
     {{"rope_parameters", {{"rope_type", "linear"}, {"factor", 0}}}},
     "M: the rope scaling factor is 0; it must be positive"},
    {"llama",
     {{"rope_parameters", {{"rope_type", "dynamic"}, {"factor", -2}}}},
     "M: the rope scaling factor is -2; it must be positive"},
    {"llama",
     {{"rope_parameters", {{"rope_type", "yarn"}, {"factor", 4}, {"beta_fast", 0}}}},
     "M: the factors of rope scaling are out of range or out of order"},
    {"llama",
     {{"rope_parameters", {{"rope_type", "yarn"}, {"original_max_position_embeddings", 0}}}},
     "M: this rope scaling needs the original context length"},
    {"llama",
     {{"rope_parameters", {{"rope_type", "llama3"}, {"factor", 8}, {"low_freq_factor", 4}, {"high_freq_factor", 1}}}},
     "M: the factors of rope scaling are out of range or out of order"},
    {"llama",
     {{"rope_parameters",
       {{"rope_type", "longrope"}, {"factor", 8}, {"short_factor", {1, 2}}, {"long_factor", {1, 2}}}}},
     "M: 2 longrope factors, expected 8"},
    {"llama",
     {{"rope_parameters",
       {{"rope_type", "longrope"},
        {"factor", 8},
        {"short_factor", {1, 1, 1, 1, 1, 1, 1, 1}},
        {"long_factor", {1, 1, 1, 1, 1, 1, 1, -1}}}}},
     "M: a longrope factor is -1; it must be positive"},
    {"llama",
     {{"partial_rotary_factor", 1.5}},
     "M/config.json: partial_rotary_factor: 1.5 is not a part of a head; it must be above 0 and at most 1"},
    {"llama",
     {{"attn_logit_softcapping", 50.0}},
     "M/config.json: attn_logit_softcapping: 50.0 is not supported; Quire's llama family does not have it"},
    {"llama",
     {{"sliding_window", 16}},
     "M/config.json: sliding_window: 16 is not supported; Quire's llama family does not have it"},
    {"llama",
     {{"layer_types", {"full_attention", "sliding_attention", "full_attention"}}},
     "M/config.json: layer_types: [\"full_attention\",\"sliding_attention\",\"full_attention\"] is not supported; "
     "Quire's llama family does not have it"},
    {"llama",
     {{"num_experts", 8}},
     "M/config.json: num_experts: 8 is not supported; Quire's llama family does not have it"},
    {"llama",
     {{"kv_lora_rank", 24}},
     "M/config.json: kv_lora_rank: 24 is not supported; Quire's llama family does not have it"},
    {"llama",
     {{"architectures", {"SmolLM3ForCausalLM"}}, {"no_rope_layers", {1, 0}}},
     "M/config.json: no_rope_layers: 2 entries for 3 layers"},
    {"llama",
     {{"architectures", {"SmolLM3ForCausalLM"}}, {"no_rope_layer_interval", 0}},
     "M/config.json: no_rope_layer_interval: 0 must be at least 1"},
    {"mistral", {{"sliding_window", -1}}, "M: the sliding window is -1; it must be 0 to 1073741824"},
    {"mistral",
     {{"sliding_window", "24"}},
     "M/config.json: sliding_window: expected an integer from -2147483648 to 2147483647, found \"24\""},
    {"gemma2",
     {{"layer_types", {"sliding_attention", "full_attention"}}},
     "M/config.json: layer_types: 2 layer types for 4 layers"},
    {"gemma2",
     {{"layer_types", {"chunked_attention", "full_attention", "full_attention", "full_attention"}}},
     "M/config.json: layer_types: 'chunked_attention' is not supported; supported: full_attention, sliding_attention"},
    {"gemma2", {{"query_pre_attn_scalar", 0}}, "M/config.json: query_pre_attn_scalar: 0 must be positive"},
    {"gemma2", {{"query_pre_attn_scalar", -24}}, "M/config.json: query_pre_attn_scalar: -24 must be positive"},
    {"gemma2", {{"attn_logit_softcapping", -3}}, "M: the soft cap of scores is -3; it must be at least 0"},
    {"gemma2", {{"final_logit_softcapping", -3}}, "M: the soft cap of logits is -3; it must be at least 0"},
    {"gemma3_text",
     {{"rope_parameters", {{"sliding_attention", nullptr}}}},
     "M/config.json: rope_parameters.sliding_attention is missing"},
    {"gemma4_text", {{"enable_moe_block", true}}, "M/config.json: num_experts is missing"},
    {"gemma4_text",
     {{"num_kv_shared_layers", 5}},
     "M/config.json: num_kv_shared_layers: 5 of 5 layers cannot share caches"},
    {"gemma4_text",
     {{"num_kv_shared_layers", -1}},
     "M/config.json: num_kv_shared_layers: -1 of 5 layers cannot share caches"},
    {"gemma4_text",
     {{"hidden_size_per_layer_input", 16}},
     "M: tensor model.embed_tokens_per_layer.weight has shape [256, 40], expected [256, 80]"},
    {"gemma4_text",
     {{"per_layer_config", {{"2", {{"head_dim", 12}}}}}},
     "M: layer 2: the rotary size is 24; it must be 0 to 12"},
    {"gpt_oss", {{"num_experts_per_tok", 9}}, "M: the number of experts per token is 9; it must be 1 to 8"},
    {"gpt_oss", {{"num_experts_per_tok", 0}}, "M: the number of experts per token is 0; it must be 1 to 8"},
    {"gpt_oss", {{"num_local_experts", nullptr}}, "M/config.json: num_experts is missing"},
    {"gpt_oss",
     {{"num_local_experts", 4}},
     "M: tensor model.layers.0.mlp.router.weight has shape [8, 64], expected [4, 64]"},
    {"gpt_oss", {{"swiglu_limit", -1}}, "M: the bound of the experts' gates is -1; it must be positive"},
    {"deepseek_v3", {{"n_group", 3}}, "M: layer 1: 8 experts cannot be cut into 3 groups"},
    {"deepseek_v3", {{"n_group", 0}}, "M: layer 1: the number of expert groups is 0; it must be 1 to 8"},
    {"deepseek_v3", {{"topk_group", 5}}, "M: layer 1: the number of expert groups per token is 5; it must be 1 to 4"},
    {"deepseek_v3", {{"num_experts_per_tok", 5}}, "M: layer 1: 5 experts per token, but the chosen groups have 4"},
    {"deepseek_v3", {{"kv_lora_rank", nullptr}}, "M/config.json: kv_lora_rank is missing"},
    {"deepseek_v3", {{"qk_rope_head_dim", 15}}, "M: rotary size 15 must be even"},
    {"deepseek_v3",
     {{"qk_nope_head_dim", 0}},
     "M: the size of a head's keys without a position is 0; it must be 1 to 4096"},
    {"deepseek_v3", {{"first_k_dense_replace", 0}}, "M: tensor model.layers.0.mlp.gate.weight is missing"},
    {"deepseek_v3",
     {{"architectures", {"DeepseekV2ForCausalLM"}}, {"topk_method", "noaux_tc"}},
     "M/config.json: topk_method: 'noaux_tc' is not supported; supported: greedy, group_limited_greedy"},
    {"glm4_moe",
     {{"n_shared_experts", -1}},
     "M: layer 1: the size of the shared experts is -8; it must be 0 to 1048576"},
    {"glm4_moe",
     {{"n_shared_experts", 0}},
     "M: unexpected tensor model.layers.1.mlp.shared_experts.down_proj.weight: Quire's glm4_moe architecture does not "
     "use it"},
    {"olmoe", {{"clip_qkv", -1}}, "M: the bound of queries, keys and values is -1; it must be at least 0"},
    {"olmoe",
     {{"moe_intermediate_size", 8}},
     "M: tensor model.layers.0.mlp.experts.0.gate_proj.weight has shape [16, 64], expected [8, 64]"},
    {"gpt2", {{"scale_attn_weights", false}}, "M/config.json: scale_attn_weights: false is not supported"},
    {"gpt2", {{"n_head", 3}}, "M: tensor transformer.h.0.attn.c_attn.weight has shape [64, 192], expected [64, 189]"},
    {"gpt2", {{"n_positions", 1024}}, "M: tensor transformer.wpe.weight has shape [512, 64], expected [1024, 64]"},
    {"cohere_qk_norm", {{"logit_scale", "half"}}, "M/config.json: logit_scale: expected a number, found \"half\""},
    {"cohere_qk_norm",
     {{"use_qk_norm", false}},
     "M: unexpected tensor model.layers.0.self_attn.k_norm.weight: Quire's cohere architecture does not use it"},
    {"ministral3",
     {{"rope_parameters", {{"rope_type", "default"}}}},
     "M: the context length that scales queries is 0; it must be 1 to 1073741824"},
    {"qwen2",
     {{"use_sliding_window", true}, {"max_window_layers", 0}, {"layer_types", nullptr}, {"sliding_window", -5}},
     "M: the sliding window is -5; it must be 0 to 1073741824"},
};

TEST(BadSettings, AreRefusedInConfigJson) {
  for (const Setting& setting : kSettings) {
    SCOPED_TRACE(std::string(setting.model) + " " + setting.changes.dump());
    EditedModel model(setting.model);
    model.config.merge_patch(setting.changes);
    expect_refused(model.write(), setting.message, SeenBy::kBoth);
  }
}

// ---- GGUF

struct GgufCase {
  const char* what;
  std::function<void(TinyGguf&)> edit;
  const char* message;
};

const GgufCase kGgufCases[] = {
    {"no architecture", [](TinyGguf& g) { g.keys.erase("general.architecture"); },
     "M: key \"general.architecture\" is missing"},
    {"a misspelt architecture", [](TinyGguf& g) { g.keys["general.architecture"] = "lama"; },
     "M: architecture 'lama' is not supported, but llama is"},
    {"no layers", [](TinyGguf& g) { g.keys["llama.block_count"] = 0u; },
     "M: the number of layers is 0; it must be 1 to 1024"},
    {"no number of layers", [](TinyGguf& g) { g.keys.erase("llama.block_count"); },
     "M: key \"llama.block_count\" is missing"},
    {"a number of layers that is text", [](TinyGguf& g) { g.keys["llama.block_count"] = "1"; },
     "M: key \"llama.block_count\": expected an integer, found STRING"},
    {"a layer too many", [](TinyGguf& g) { g.keys["llama.block_count"] = 2u; },
     "M: tensor blk.1.attn_norm.weight is missing"},
    {"no heads", [](TinyGguf& g) { g.keys["llama.attention.head_count"] = 0u; },
     "M: the number of attention heads is 0; it must be 1 to 1024"},
    {"more KV heads than heads", [](TinyGguf& g) { g.keys["llama.attention.head_count_kv"] = 2u; },
     "M: the number of KV heads is 2; it must be 1 to 1"},
    {"no epsilon", [](TinyGguf& g) { g.keys.erase("llama.attention.layer_norm_rms_epsilon"); },
     "M: key \"llama.attention.layer_norm_rms_epsilon\" is missing"},
    {"no context", [](TinyGguf& g) { g.keys["llama.context_length"] = 0u; },
     "M: the context length is 0; it must be 1 to 134217728"},
    {"an unknown kind of rope scaling", [](TinyGguf& g) { g.keys["llama.rope.scaling.type"] = "spiral"; },
     "M: key llama.rope.scaling.type: rope scaling 'spiral' is not supported"},
    {"an odd rotary size", [](TinyGguf& g) { g.keys["llama.rope.dimension_count"] = 31u; },
     "M: rotary size 31 must be even"},
    {"queries that see later tokens", [](TinyGguf& g) { g.keys["llama.attention.causal"] = false; },
     "M: key llama.attention.causal: false is not supported by Quire's llama family"},
    {"a cap that the family does not have", [](TinyGguf& g) { g.keys["llama.attn_logit_softcapping"] = 50.0f; },
     "M: key llama.attn_logit_softcapping: 50 is not supported"},
    {"experts without tensors",
     [](TinyGguf& g) {
       g.keys["llama.expert_count"] = 4u;
       g.keys["llama.expert_used_count"] = 2u;
     },
     "M: tensor blk.0.ffn_gate_inp.weight is missing"},
    {"more experts per token than there are",
     [](TinyGguf& g) {
       g.keys["llama.expert_count"] = 4u;
       g.keys["llama.expert_used_count"] = 5u;
     },
     "M: the number of experts per token is 5; it must be 1 to 4"},
    {"rope factors of the wrong size",
     [](TinyGguf& g) {
       g.tensors.push_back({"rope_freqs.weight", {3}});
     },
     "M: 3 rope frequency factors, expected 16"},
    {"an embedding of another size", [](TinyGguf& g) { g.tensor("token_embd.weight").dimensions[0] = 64; },
     "M: tensor token_embd.weight has shape [8, 64], expected [8, 32]"},
};

TEST(BadSettings, AreRefusedInGguf) {
  for (const GgufCase& c : kGgufCases) {
    SCOPED_TRACE(c.what);
    TinyGguf gguf;
    c.edit(gguf);
    const GgufFile file(gguf.bytes());
    for (std::string message : {message_of_loading(file.path), message_of_inspecting(file.path)}) {
      message = shortened(message, file.path);
      EXPECT_EQ(message.substr(0, message.find("; supported: ")), c.message);
    }
  }
}

}  // namespace
}  // namespace quire
