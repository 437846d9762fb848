#!/usr/bin/env python3
"""Writes tiny random models with the logits and greedy tokens that transformers gives for them: make_models.py ../data/models [NAME...]

`off` names what each model shows: its logits must move when that is switched off."""
import json
import sys
import traceback
from pathlib import Path
from types import MethodType

import torch
import transformers as T
from golden_models import DELETE, Model, fill, last_tap, make, rename_tensors, write_json


def rope(theta=10000.0, **more):
    return {"rope_type": "default", "rope_theta": theta, **more}


SMALL = {"hidden_size": 48, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
QK_NORM = fill(r"(q_norm|k_norm|query_layernorm|key_layernorm|q_layernorm|k_layernorm)\.weight$", 1.0)
MAMBA = {"decay": fill(r"A_log$", 4.0), "memory without decay": fill(r"A_log$", -20.0), "step biases": fill(r"dt_bias$", 0.0), "skip": fill(r"\.D$", 0.0), "convolution": last_tap, "convolution biases": fill(r"conv1d\.bias$", 0.0)}
NEMOTRON = {"hidden_size": 48, "intermediate_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "mamba_num_heads": 8, "mamba_head_dim": 8, "ssm_state_size": 16, "n_groups": 2, "chunk_size": 8}
GEMMA4_ROPE = {"sliding_attention": rope(), "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6}}
FALCON_H1 = {"embedding_multiplier": 3.0, "lm_head_multiplier": 0.6, "attention_in_multiplier": 1.4, "attention_out_multiplier": 0.7, "key_multiplier": 0.6, "ssm_in_multiplier": 1.3, "ssm_out_multiplier": 0.7,
             "ssm_multipliers": [0.7, 1.2, 0.8, 1.4, 0.5], "mlp_multipliers": [1.7, 0.6]}
STABLELM = {**SMALL, "hidden_size": 32, "intermediate_size": 48, "qk_layernorm": True, "rope_parameters": rope(partial_rotary_factor=0.5)}
STABLELM_OFF = {"weights of norms": fill(r"(q|k)_layernorm\.norms\.\d+\.weight$", 1.0), "norms": {"qk_layernorm": False}, "part that turns": {"rope_parameters": rope(partial_rotary_factor=1.0)}}
YARN = {"rope_type": "yarn", "rope_theta": 500000.0, "factor": 8.0, "original_max_position_embeddings": 64, "attention_factor": 1.2, "beta_fast": 4.0, "beta_slow": 1.0}


def one_after_the_other(model):
    """StableLM's MLP reads what attention gives."""
    for layer in model.model.layers:
        layer.use_parallel_residual = False
        layer.post_attention_layernorm = layer.input_layernorm


def norms_first(model):
    """Hunyuan with the norms of heads before rope."""
    for layer in model.model.layers:
        a, dim = layer.self_attn, model.config.head_dim
        for projection, norm in ((a.q_proj, a.query_layernorm), (a.k_proj, a.key_layernorm)):
            projection.register_forward_hook(lambda m, i, y, norm=norm: norm(y.unflatten(-1, (-1, dim))).flatten(-2))
        a.query_layernorm = a.key_layernorm = torch.nn.Identity()


def rotate_halves(model):
    """Pairs of rope are elements of both halves, not neighbours: undone by permuting what queries and keys are projected to."""
    dim = model.model.layers[0].self_attn.head_dim
    turned = int(dim * model.config.rope_parameters.get("partial_rotary_factor", 1.0))
    order = torch.cat([torch.arange(0, turned, 2), torch.arange(1, turned, 2), torch.arange(turned, dim)])
    for layer in model.model.layers:
        for projection in (layer.self_attn.q_proj, layer.self_attn.k_proj):
            for p in projection.parameters():
                p.copy_(p.unflatten(0, (-1, dim))[:, order].flatten(0, 1))


def no_alibi(function):
    """The model without the biases that this function of its module builds."""
    def run(model):
        module = sys.modules[type(model).__module__]
        build = getattr(module, function)

        def forward(*args, **settings):
            setattr(module, function, lambda *a, **s: 0 * build(*a, **s))
            try:
                return type(model).forward(model, *args, **settings)
            finally:
                setattr(module, function, build)
        model.forward = forward
    return run


def exponents_of_mpt(model):
    """As the original code; transformers ignores alibi_bias_max."""
    module, most = sys.modules[type(model).__module__], model.config.attn_config.alibi_bias_max
    model.transformer.build_mpt_alibi_tensor = lambda heads, length, device=None: module.build_mpt_alibi_tensor(heads, length, most, device)


def add_alibi_once(model):
    """The eager code of Falcon adds ALiBi twice: to scores and in the mask."""
    model.config._attn_implementation = "sdpa"


def first_expert(router):
    """Phi-3.5-MoE's router without its second expert."""
    def forward(x):
        logits, weights, chosen = type(router).forward(router, x)
        return logits, weights * torch.tensor([1.0, 0.0]), chosen
    return forward


def as_internlm2(folder, config):
    """Llama's weights under the names of InternLM 2."""
    names = {"embed_tokens": "tok_embeddings", "input_layernorm": "attention_norm", "post_attention_layernorm": "ffn_norm", "self_attn.o_proj": "attention.wo", "mlp.gate_proj": "feed_forward.w1",
             "mlp.up_proj": "feed_forward.w3", "mlp.down_proj": "feed_forward.w2", "lm_head": "output"}
    dim = config["hidden_size"] // config["num_attention_heads"]

    def rename(tensors):
        out = {}
        for name, tensor in tensors.items():
            if "_proj" in name and "self_attn.o" not in name and "mlp" not in name:
                continue
            for old, new in names.items():
                name = name.replace(old, new)
            out[name] = tensor
        for layer in range(config["num_hidden_layers"]):
            q, k, v = (tensors[f"model.layers.{layer}.self_attn.{x}_proj.weight"].unflatten(0, (config["num_key_value_heads"], -1, dim)) for x in "qkv")
            out[f"model.layers.{layer}.attention.wqkv.weight"] = torch.cat([q, k, v], 1).flatten(0, 2)
        return out
    rename_tensors(folder, rename)
    for name in ("config.json", "config_v4.json"):
        write_json(folder / name, {**json.loads((folder / name).read_text()), "architectures": ["InternLM2ForCausalLM"], "model_type": "internlm2", "bias": False})


def norms_of_groups(model):
    """As mamba_ssm trains; transformers normalises all groups of Mamba-2 together."""
    groups = model.config.n_groups

    def forward(norm, x, gate):
        x = (x * torch.nn.functional.silu(gate)).unflatten(-1, (groups, -1))
        return norm.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + norm.variance_epsilon)).flatten(-2)

    for layer in model.backbone.layers:
        layer.mixer.norm.forward = MethodType(forward, layer.mixer.norm)


MODELS = {
    "hunyuan": Model("Hunyuan, dense: norms of each head after rope, whose base is stretched by alpha; tied.", T.HunYuanDenseV1Config,
                     {**SMALL, "head_dim": 16, "max_position_embeddings": 32768, "tie_word_embeddings": True, "rope_parameters": rope(rope_type="dynamic", alpha=50.0, factor=1.0)},
                     {"norms of heads": QK_NORM, "norms after rope": norms_first, "alpha": {"rope_parameters": rope()}}),
    "cohere2": Model("Cohere 2: parallel layers after one norm without bias, neighbouring pairs turn in layers with a window, scaled logits, tied.", T.Cohere2Config,
                     {**SMALL, "num_hidden_layers": 4, "sliding_window": 8, "logit_scale": 0.5, "layer_types": ["sliding_attention"] * 3 + ["full_attention"], "rope_parameters": rope(50000.0)},
                     {"window": {"sliding_window": 512}, "layer kinds": {"layer_types": ["sliding_attention"] * 4}, "logit scale": {"logit_scale": 1.0}, "theta": {"rope_parameters": rope()}},
                     v4={"layer_types": DELETE, "sliding_window_pattern": 4}),
    "olmo": Model("OLMo 1: layer norms without weights; queries, keys and values are clipped.", T.OlmoConfig, {**SMALL, "clip_qkv": 0.8, "rope_parameters": rope()},
                  {"clipping": {"clip_qkv": None}, "theta": {"rope_parameters": rope(500.0)}}),
    "olmo3": Model("OLMo 3: norms after attention and MLP, of all heads together, three layers of four with a window; YaRN in the others.", T.Olmo3Config,
                   {**SMALL, "num_hidden_layers": 4, "sliding_window": 8, "rope_parameters": {"sliding_attention": rope(5e5), "full_attention": YARN}},
                   {"window": {"sliding_window": 512}, "norms of heads": QK_NORM, "yarn": {"rope_parameters": {"sliding_attention": rope(5e5), "full_attention": rope(5e5)}},
                    "rope without yarn in layers with a window": {"rope_parameters": {"sliding_attention": YARN, "full_attention": YARN}}}, v4={"layer_types": DELETE}),
    "gptj": Model("GPT-J: attention and MLP in parallel after one layer norm, neighbouring pairs turn in part of each head, biases of the MLP and the output.", T.GPTJConfig,
                  {"n_embd": 48, "n_layer": 2, "n_head": 4, "n_positions": 512, "rotary_dim": 8, "n_inner": 96},
                  {"partial rope": {"rotary_dim": 4}, "biases of the MLP": fill(r"fc_(in|out)\.bias$", 0.0), "biases of the output": fill(r"lm_head\.bias$", 0.0), "biases of norms": fill(r"ln_1\.bias$", 0.0)}),
    "seed_oss": Model("Seed-OSS: biases on queries, keys and values, heads wider than hidden size / heads.", T.SeedOssConfig, {**SMALL, "head_dim": 16, "attention_bias": True, "rope_parameters": rope(1e7)},
                      {"biases": fill(r"[qkv]_proj\.bias$", 0.0), "theta": {"rope_parameters": rope()}}),
    "lfm2_moe": Model("LFM2 with experts: short convolutions and attention; experts after a dense layer, chosen by sigmoids with a bias, weights normalised.", T.Lfm2MoeConfig,
                      {**SMALL, "num_hidden_layers": 4, "moe_intermediate_size": 16, "num_dense_layers": 1, "num_experts": 6, "num_experts_per_tok": 2, "norm_topk_prob": True,
                       "use_expert_bias": True, "layer_types": ["conv", "full_attention", "conv", "full_attention"], "rope_parameters": rope(1e6)},
                      {"bias of the choice": {"use_expert_bias": False}, "scale of experts": {"routed_scaling_factor": 2.0}, "normalised weights": {"norm_topk_prob": False}, "norms of heads": QK_NORM, "convolution": last_tap},
                      keep=r"expert_bias$"),
    "mamba2": Model("Mamba-2 alone: two groups share B and C, and their results are normalised each on its own.", T.Mamba2Config,
                    {"hidden_size": 32, "num_heads": 8, "head_dim": 8, "state_size": 16, "n_groups": 2, "num_hidden_layers": 3, "conv_kernel": 4, "expand": 2, "chunk_size": 8, "tie_word_embeddings": False},
                    {**MAMBA, "norms of groups": lambda model: [delattr(layer.mixer.norm, "forward") for layer in model.backbone.layers]}, v4={"time_step_limit": DELETE}, mend=norms_of_groups),
    "nemotron_h": Model("Nemotron-H: Mamba-2 with two groups, attention without positions, and MLPs of squared ReLU, each with a norm of its own.", T.NemotronHConfig,
                        {**NEMOTRON, "layers_block_type": ["mamba", "mlp", "attention", "mlp", "mamba", "attention"]},
                        MAMBA, v4={"time_step_limit": DELETE, "layers_block_type": DELETE, "hybrid_override_pattern": "M-*-M*", "num_hidden_layers": 6}),
    "hunyuan_moe": Model("Hunyuan with experts: as the dense one, with top 2 of 6 experts (softmax, normalised) and a shared MLP in every layer.", T.HunYuanMoEV1Config,
                         {**SMALL, "intermediate_size": 16, "head_dim": 16, "num_experts": 6, "moe_topk": 2, "rope_parameters": rope()},
                         {"norms of heads": QK_NORM, "norms after rope": norms_first, "shared MLP": fill(r"shared_mlp\.down", 0.0), "second expert": {"moe_topk": 1}},
                         v4={"moe_topk": [2, 2], "moe_intermediate_size": [16, 16], "num_shared_expert": [1, 1]}),
    "glm": Model("GLM-4 9B: biases on queries, keys and values, neighbouring pairs turn in half of each head, [gate; up] in one tensor.", T.GlmConfig,
                 {**SMALL, "head_dim": 12, "attention_bias": True, "rms_norm_eps": 1e-5, "rope_parameters": rope(partial_rotary_factor=0.5)},
                 {"biases": fill(r"[qkv]_proj\.bias$", 0.0), "partial rope": {"rope_parameters": rope(partial_rotary_factor=1.0)}, "neighbours": rotate_halves}),
    "glm4": Model("GLM-4-0414: as GLM-4 9B, with norms after attention and MLP as well.", T.Glm4Config,
                  {**SMALL, "head_dim": 16, "attention_bias": True, "rope_parameters": rope(partial_rotary_factor=0.5)},
                  {"norms of results": fill(r"post_(self_attn|mlp)_layernorm", 1.0), "biases": fill(r"[qkv]_proj\.bias$", 0.0), "partial rope": {"rope_parameters": rope(partial_rotary_factor=1.0)}, "neighbours": rotate_halves}),
    "ernie4_5": Model("ERNIE 4.5, dense: Llama in which neighbouring pairs turn; tied.", T.Ernie4_5Config, {**SMALL, "head_dim": 16, "tie_word_embeddings": True, "rope_parameters": rope(5e5)},
                      {"neighbours": rotate_halves, "theta": {"rope_parameters": rope()}}),
    "ernie4_5_moe": Model("ERNIE 4.5 with experts after a dense layer: chosen by softmax with a bias, normalised; two shared experts.", T.Ernie4_5_MoeConfig,
                          {**SMALL, "num_hidden_layers": 3, "moe_intermediate_size": 16, "moe_num_experts": 6, "moe_k": 2, "moe_num_shared_experts": 2, "moe_layer_start_index": 1, "rope_parameters": rope(5e5)},
                          {"neighbours": rotate_halves, "bias of the choice": fill(r"e_score_correction_bias", 0.0), "second expert": {"moe_k": 1}, "shared experts": fill(r"shared_experts\.down", 0.0)}),
    "bloom": Model("BLOOM: ALiBi for six heads (not a power of two), norm of embeddings, biases everywhere, queries, keys and values in one tensor, head by head; tied.", T.BloomConfig,
                   {"hidden_size": 48, "n_layer": 2, "n_head": 6, "seq_length": 512},
                   {"alibi": no_alibi("build_alibi_tensor"), "norm of embeddings": fill(r"word_embeddings_layernorm\.weight", 0.4), "biases": fill(r"(query_key_value|dense\w*)\.bias$", 0.0), "biases of norms": fill(r"layernorm\.bias$", 0.0)},
                   weights=[(r"word_embeddings_layernorm\.weight", (0.2, 0.6)), (r"(query_key_value|dense\w*)\.weight", 0.3)]),
    "mpt": Model("MPT: ALiBi for six heads with exponents up to 16, clipped queries, keys and values in one tensor, no biases; tied.", T.MptConfig,
                 {"d_model": 48, "n_layers": 2, "n_heads": 6, "max_seq_len": 512, "attn_config": {"alibi": True, "alibi_bias_max": 16, "clip_qkv": 0.8}},
                 {"alibi": no_alibi("build_mpt_alibi_tensor"), "clipping": {"attn_config": {"alibi": True, "alibi_bias_max": 16}}, "exponents": {"attn_config": {"alibi": True, "alibi_bias_max": 8, "clip_qkv": 0.8}}}, mend=exponents_of_mpt),
    "falcon_alibi": Model("Falcon with ALiBi (the 1-billion models): slopes are scaled like scores, one branch after the other, biases.", T.FalconConfig,
                          {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "alibi": True, "multi_query": False, "parallel_attn": False, "new_decoder_architecture": False, "bias": True},
                          {"alibi": no_alibi("build_alibi_tensor"), "biases": fill(r"(query_key_value|dense\w*)\.bias$", 0.0)}, mend=add_alibi_once),
    "internlm2": Model("InternLM 2: Llama under other names, queries, keys and values in one tensor, KV head by KV head. Computed by Llama.", T.LlamaConfig, {**SMALL, "rope_parameters": rope(1e6)},
                       {"theta": {"rope_parameters": rope()}, "values": fill(r"v_proj", 0.0), "keys": fill(r"k_proj", 0.0)}, publish=as_internlm2),
    "arcee": Model("Arcee: Llama with plain MLPs of squared ReLU.", T.ArceeConfig, {**SMALL, "head_dim": 12, "rope_parameters": rope()}, {"squared ReLU": {"hidden_act": "relu"}, "theta": {"rope_parameters": rope(500.0)}}),
    "nemotron_h_moe": Model("Nemotron-H with experts of squared ReLU without gates: chosen by sigmoids with a bias, normalised and scaled, and a shared one.", T.NemotronHConfig,
                            {**NEMOTRON, "layers_block_type": ["mamba", "moe", "attention", "moe"], "n_routed_experts": 6, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1, "routed_scaling_factor": 2.5, "moe_intermediate_size": 16,
                             "moe_shared_expert_intermediate_size": 24},
                            {"bias of the choice": fill(r"e_score_correction_bias", 0.0), "scale of experts": {"routed_scaling_factor": 1.0}, "normalised weights": {"norm_topk_prob": False}, "shared expert": fill(r"shared_experts\.down", 0.0)},
                            v4={"time_step_limit": DELETE, "layers_block_type": DELETE, "hybrid_override_pattern": "ME*E", "num_hidden_layers": 4}),
    "phimoe": Model("Phi-3.5-MoE: layer norms and biases, LongRoPE, and SparseMixer, which weighs each of two experts by the softmax of those that are near it.", T.PhimoeConfig,
                    {**SMALL, "intermediate_size": 16, "attention_bias": True, "lm_head_bias": True, "num_local_experts": 6, "num_experts_per_tok": 2, "router_jitter_noise": 0.2,
                     "rope_parameters": {"rope_type": "longrope", "rope_theta": 10000.0, "original_max_position_embeddings": 256, "short_factor": [1.0, 1.5, 2.0, 2.0, 3.0, 4.0], "long_factor": [4.0] * 6, "short_mscale": 1.2, "long_mscale": 1.2}},
                    {"experts that are near": {"router_jitter_noise": 0.01}, "biases of the output": fill(r"lm_head\.bias", 0.0), "biases of norms": fill(r"layernorm\.bias", 0.0), "biases of attention": fill(r"_proj\.bias", 0.0),
                     "second expert": lambda model: [setattr(layer.mlp.router, "forward", first_expert(layer.mlp.router)) for layer in model.model.layers]}),
    "gemma4_moe": Model("Gemma 4 with experts: next to each layer's MLP, top 2 of 6 experts, each with norms of its own before and after; the router's input is normalised and scaled, and each expert has a factor. Keys are values in layers that see all tokens.",
                        T.Gemma4TextConfig,
                        {**SMALL, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 3, "head_dim": 8, "global_head_dim": 16, "num_global_key_value_heads": 1, "attention_k_eq_v": True, "sliding_window": 8, "num_kv_shared_layers": 0,
                         "layer_types": ["sliding_attention", "sliding_attention", "full_attention"], "hidden_size_per_layer_input": 0, "enable_moe_block": True, "num_experts": 6, "top_k_experts": 2, "moe_intermediate_size": 16,
                         "tie_word_embeddings": True, "rope_parameters": GEMMA4_ROPE},
                        {"factors of experts": fill(r"per_expert_scale", 1.0), "scale of the router": fill(r"router\.scale", 1.0), "norm after experts": fill(r"post_feedforward_layernorm_2", 1.0), "norm after the MLP": fill(r"post_feedforward_layernorm_1", 1.0),
                         "norm before experts": fill(r"pre_feedforward_layernorm_2", 1.0), "second expert": {"top_k_experts": 1}, "MLP": fill(r"mlp\.down_proj", 0.0), "window": {"sliding_window": 512}},
                        weights=[(r"layer_scalar", (0.6, 1.2)), (r"per_expert_scale", (0.3, 1.7)), (r"router\.scale", (0.3, 1.7)), (r"router\.proj", 1.0)],
                        v4={"per_layer_config": DELETE, "global_head_dim": 16, "num_global_key_value_heads": 1, "rope_theta": DELETE, "rope_scaling": DELETE, "partial_rotary_factor": DELETE, "rope_parameters": GEMMA4_ROPE}),
    "falcon_h1": Model("Falcon-H1: attention and Mamba-2 with two groups read the same input, and their results are added; a multiplier for every projection.", T.FalconH1Config,
                       {**SMALL, "head_dim": 16, "mamba_d_ssm": 64, "mamba_n_heads": 8, "mamba_d_head": 8, "mamba_n_groups": 2, "mamba_d_state": 16, "mamba_chunk_size": 8, "mamba_rms_norm": False, "mamba_norm_before_gate": False,
                        "projectors_bias": False, "tie_word_embeddings": False, "rope_parameters": rope(1e6), **FALCON_H1},
                       {**MAMBA, "attention": fill(r"o_proj", 0.0), "theta": {"rope_parameters": rope()}, **{name: {name: [1.0] * len(value) if isinstance(value, list) else 1.0} for name, value in FALCON_H1.items()}},
                       v4={"time_step_limit": DELETE}),
    "stablelm_qk_norm": Model("StableLM 2 12B: attention and MLP in parallel after one layer norm, layer norms without biases for each head of queries and keys, and half of each head turns.", T.StableLmConfig,
                              {**STABLELM, "use_parallel_residual": True}, {**STABLELM_OFF, "parallel": one_after_the_other}),
    "stablelm_qk_norm_biases": Model("StableLM with norms for each head, one block after the other, and biases of queries, keys and values.", T.StableLmConfig,
                                     {**STABLELM, "num_hidden_layers": 1, "use_qkv_bias": True}, {**STABLELM_OFF, "biases": fill(r"_proj\.bias$", 0.0), "second norm": fill(r"post_attention_layernorm\.weight$", 1.0)}),
}


def main():
    folder, failed = Path(sys.argv[1]), False
    for name in sys.argv[2:] or MODELS:
        try:
            make(name, MODELS[name], folder / name)
        except Exception:
            traceback.print_exc()
            failed = True
    sys.exit(failed)


if __name__ == "__main__":
    main()
