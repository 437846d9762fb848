#!/usr/bin/env python3
"""What other programs make of directories that Quire wrote: one matrix of each, its tensors and the float16 weights that the program's own reader gives for them.

usage: make_written.py DIRECTORIES OUT_DIR      (needs torch, transformers, compressed-tensors, bitsandbytes, gptqmodel, safetensors)

DIRECTORIES holds directories of one random float16 llama (hidden size 128, two layers), which `quire quantize MODEL DIRECTORIES/CASE --method ...` wrote; those of gptq and awq also need a tokenizer, or GPTQModel does not load them.
"""
import json
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, CompressedTensorsConfig, FineGrainedFP8Config

MODULE = "model.layers.0.self_attn.k_proj"


def by_transformers(path, method):
    settings = {"compressed-tensors": {"quantization_config": CompressedTensorsConfig(run_compressed=False)}, "fp8": {"quantization_config": FineGrainedFP8Config(dequantize=True)}}
    weight = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float16, device_map="cpu", **settings.get(method, {})).get_submodule(MODULE).weight
    if method != "bitsandbytes":
        return weight
    import bitsandbytes.functional as bnb

    if getattr(weight, "quant_state", None) is not None:
        return bnb.dequantize_4bit(weight.data, weight.quant_state)
    return weight.data.float() * weight.SCB.float()[:, None] / 127


def by_gptqmodel(path, method):
    from gptqmodel import BACKEND, GPTQModel

    model = GPTQModel.load(str(path), backend=BACKEND.TORCH if method == "gptq" else BACKEND.TORCH_AWQ, device="cpu", dtype=torch.float16)
    linear = next(module for name, module in model.named_modules() if name.endswith(MODULE))
    if method == "gptq":
        return linear.dequantize_weight().T  # [inputs, outputs]
    return linear(torch.eye(linear.in_features, dtype=torch.float16)).T


tensors, configs = {}, {}
for path in sorted(Path(sys.argv[1]).iterdir()):
    quantization = json.loads((path / "config.json").read_text())["quantization_config"]
    method = quantization["quant_method"]
    weight = (by_gptqmodel if method in ("gptq", "awq") else by_transformers)(path, method)
    for name, tensor in load_file(path / "model.safetensors").items():
        if name.startswith(MODULE + "."):
            tensors[f"{path.name}/{name}"] = tensor
    tensors[path.name + "/expected"] = weight.detach().half().contiguous()
    configs[path.name] = quantization
save_file(tensors, sys.argv[2] + "/written.safetensors")
Path(sys.argv[2], "written.json").write_text(json.dumps(configs, indent=1) + "\n")
