#!/usr/bin/env python3
"""Writes tiny random quantized models with the logits and greedy tokens of their dequantized weights: make_quantized.py ../data/formats/hf-models [NAME...]

transformers computes the logits in float32 from an unquantized copy. Models that are made for int8 inputs have `int8_logits` too: all quantized linears take int8 inputs with one
scale a row, as int8_forward() says, and the head, which is not quantized, takes bfloat16."""
import json
import re
import shutil
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from types import MethodType
from typing import Callable

import quantizers
import torch
import transformers as T
from golden_models import EAGER, VOCABULARY, Model, draw, logits_of, write_json
from safetensors.torch import load_file, save_file

PROMPT, STEPS, SEEDS, MARGIN = 17, 16, 40, 0.02
QUANTIZED = re.compile(r"((_proj|_with_mqa|\.w[123])\.weight|mlp\.experts\.\w+_proj)$")
LLAMA = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
DEEPSEEK = {"hidden_size": 64, "intermediate_size": 96, "moe_intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4, "q_lora_rank": 64, "kv_lora_rank": 64,
            "qk_nope_head_dim": 16, "qk_rope_head_dim": 16, "v_head_dim": 16, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_shared_experts": 1, "n_group": 2, "topk_group": 2, "first_k_dense_replace": 1}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": True, "sym": False, "checkpoint_format": "gptq"}
FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3", "weight_block_size": [32, 32]}


def compressed(format, weights, inputs):
    group = {"targets": ["Linear"], "weights": weights, "input_activations": inputs}
    return {"quant_method": "compressed-tensors", "format": format, "config_groups": {"group_0": group}, "ignore": ["lm_head"]}


def gptq(name, weight, random):
    """Act-order: matrices with the same inputs have one order if a model multiplies them in one pass, as experts' gate and up projections; else each has its own."""
    same = re.sub(r"\.w3\.", ".w1.", name.replace("up_proj", "gate_proj")) if "experts" in name else name
    if same not in random.orders:
        random.orders[same] = torch.randperm(weight.shape[1], generator=random.generator)
    return quantizers.gptq(weight, random.orders[same])


class Random:
    def __init__(self, seed):
        self.generator, self.orders = torch.Generator().manual_seed(seed), {}


def plain(quantizer):
    return lambda name, weight, random: quantizer(weight)


@dataclass
class Quantized:
    config: type
    settings: dict
    quantize: Callable
    quantization: dict
    int8: Callable = None  # a linear's codes and scales, from its tensors
    threshold: float = float("inf")
    dimensions: int = 2  # of the tensors that are quantized; 3: stacks of experts
    weights: list = field(default_factory=list)


MODELS = {
    "llama-gptq-orders": Quantized(T.LlamaConfig, LLAMA, gptq, GPTQ),
    "llama-w8a8": Quantized(T.LlamaConfig, {**LLAMA, "attention_bias": True}, plain(quantizers.w8a8), compressed(
        "int-quantized", {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel"}, {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "token", "dynamic": True}),
        int8=lambda t: (t[".weight"], t[".weight_scale"].float())),
    # A few channels of the norms are large, so that their outputs are outliers of most rows, and others of some.
    "llama-llm-int8": Quantized(T.LlamaConfig, LLAMA, plain(quantizers.llm_int8), {
        "quant_method": "bitsandbytes", "load_in_8bit": True, "load_in_4bit": False, "llm_int8_threshold": 6.0},
        int8=lambda t: (t[".weight"], t[".SCB"][:, None] / 127), threshold=6.0, weights=[(r"layernorm\.weight$", "spikes")]),
    "qwen3-nvfp4": Quantized(T.Qwen3Config, {**LLAMA, "head_dim": 16}, plain(quantizers.nvfp4), compressed(
        "nvfp4-pack-quantized", {"num_bits": 4, "type": "float", "symmetric": True, "strategy": "tensor_group", "group_size": 16}, None)),
    "phi3-gptq": Quantized(T.Phi3Config, LLAMA, gptq, GPTQ),
    "phi3-fp8": Quantized(T.Phi3Config, LLAMA, plain(quantizers.fp8), FP8),
    "gpt-oss-mxfp4": Quantized(T.GptOssConfig, {**LLAMA, "intermediate_size": 64, "head_dim": 32, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 16}, plain(quantizers.mxfp4), {
        "quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]}, dimensions=3),
    "deepseek-v3-fp8": Quantized(T.DeepseekV3Config, DEEPSEEK, plain(quantizers.fp8), FP8),
    "deepseek-v3-gptq": Quantized(T.DeepseekV3Config, DEEPSEEK, gptq, GPTQ),
    "qwen3-moe-fp8": Quantized(T.Qwen3MoeConfig, {**LLAMA, "head_dim": 16, "moe_intermediate_size": 32, "num_experts": 4, "num_experts_per_tok": 2}, plain(quantizers.fp8), FP8),
    "mixtral-gptq": Quantized(T.MixtralConfig, {**LLAMA, "intermediate_size": 64, "num_local_experts": 4, "num_experts_per_tok": 2}, gptq, GPTQ),
}


def random_tensors(spec, seed, folder):
    """A model's files in `folder`, and its tensors as they are published."""
    random = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    model = T.AutoModelForCausalLM.from_config(spec.config(**{**VOCABULARY, **spec.settings}), dtype=torch.float32, **EAGER)
    draw(model, Model("", spec.config, {}, {}, keep=r"^$", weights=[w for w in spec.weights if w[1] != "spikes"]), random)
    for name, p in model.named_parameters():
        if any(how == "spikes" and re.search(pattern, name) for pattern, how in spec.weights):
            p[torch.randperm(len(p), generator=random)[:3]] *= 8
    model.to(torch.bfloat16)
    model.config.dtype = torch.bfloat16
    model.save_pretrained(folder)
    return {name: t.contiguous() for name, t in load_file(folder / "model.safetensors").items()}


def quantize(spec, tensors, seed):
    """Tensors of the quantized file, of an unquantized one, and a linear's own by its name."""
    random, stored, numbers, modules = Random(seed), {}, {}, {}
    for name, tensor in tensors.items():
        if not QUANTIZED.search(name) or tensor.dim() != spec.dimensions:
            stored[name], numbers[name] = tensor, tensor.float()
            continue
        module = name.removesuffix(".weight")
        parts, numbers[name] = spec.quantize(name, tensor.float(), random)
        modules[module] = parts
        stored |= {module + ending: part for ending, part in parts.items()}
    assert modules
    return stored, {name: t.contiguous() for name, t in numbers.items()}, modules


def int8_forward(codes, scales, threshold):
    """y = s_x * s_w * (exact sum of int8 products); inputs of at least `threshold` are multiplied as float16, and do not count for s_x."""
    def forward(linear, x):
        outlier = x.abs() >= threshold
        rest = x.masked_fill(outlier, 0)
        scale = rest.abs().amax(-1, keepdim=True) / 127
        rounded = (rest / scale).round()
        y = (rounded.double() @ codes.double().T) * (scale.double() * scales.double().T)
        y += x.half().masked_fill(~outlier, 0).double() @ (codes * scales).double().T
        return (y if linear.bias is None else y + linear.bias).float()
    return forward


def bfloat16_inputs(linear, x):
    return torch.nn.functional.linear(x.bfloat16().float(), linear.weight)


def int8_model(model, spec, modules):
    for name, parts in modules.items():
        linear = model.get_submodule(name)
        linear.forward = MethodType(int8_forward(*spec.int8(parts), spec.threshold), linear)
    model.lm_head.forward = MethodType(bfloat16_inputs, model.lm_head)


def greedy(model, ids):
    ids, margins = list(ids), []
    for _ in range(STEPS):
        best = logits_of(model, ids)[-1].topk(2)
        ids.append(int(best.indices[0]))
        margins.append(float(best.values[0] - best.values[1]))
    return ids[-STEPS:], min(margins)


@torch.no_grad()
def attempt(spec, seed, folder):
    tensors = random_tensors(spec, seed, folder)
    stored, numbers, modules = quantize(spec, tensors, seed)
    save_file(numbers, folder / "model.safetensors", metadata={"format": "pt"})
    model = T.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **EAGER).eval()
    ids = torch.randint(0, VOCABULARY["vocab_size"], (PROMPT,), generator=torch.Generator().manual_seed(seed))
    expected = {"input_ids": ids, "logits": logits_of(model, ids)}
    tokens, margin = greedy(model, ids.tolist())
    expected["greedy_tokens"] = torch.tensor(tokens)
    if spec.int8:
        int8_model(model, spec, modules)
        expected["int8_logits"] = logits_of(model, ids)
    good = margin >= MARGIN and len(set(tokens)) >= 5 and expected["logits"].isfinite().all()
    return good, stored, expected, margin


def make(name, spec, target):
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        for seed in range(SEEDS):
            folder = Path(temporary) / str(seed)
            good, stored, expected, margin = attempt(spec, seed, folder)
            if good:
                break
        assert good, f"{name}: no seed is decisive"
        config = json.loads((folder / "config.json").read_text())
    config.pop("_name_or_path", None)
    write_json(target / "config.json", {**config, "quantization_config": spec.quantization})
    save_file({key: t.contiguous() for key, t in stored.items()}, target / "model.safetensors", metadata={"format": "pt"})
    save_file({key: t.contiguous() for key, t in expected.items()}, target / "expected.safetensors")
    for file in target.iterdir():
        file.chmod(0o644)
    logits = expected["logits"]
    moved = f", int8 inputs move them by {((expected['int8_logits'] - logits).pow(2).mean() / logits.pow(2).mean()).sqrt():.4f}" if spec.int8 else ""
    print(f"{name}: seed {seed}, {(target / 'model.safetensors').stat().st_size // 1000} kB, margin {margin:.3f}, largest logit {logits.abs().max():.1f}{moved}", flush=True)


def main():
    target, *names = sys.argv[1:]
    for name in names or MODELS:
        shutil.rmtree(Path(target) / name, ignore_errors=True)
        make(name, MODELS[name], Path(target) / name)


if __name__ == "__main__":
    main()
