"""MLX 0.32 and mlx-lm 0.32, on Linux's CPU."""
import json

import mlx.core as mx
import numpy as np
import torch
from mlx_lm.utils import load_model, quantize_model, save_config, save_model
from safetensors.torch import load_file

OWN = {"mlp.up_proj": {"bits": 8, "group_size": 64}, "self_attn.k_proj": {"bits": 3, "group_size": 32}, "mlp.down_proj": {"bits": 6, "group_size": 32}}
CASES = {
    "4bit-mixed": {"settings": {"bits": 4, "group_size": 64, "own": OWN}, "is_model": True},
    "nvfp4": {"settings": {"mode": "nvfp4", "bits": 4, "group_size": 16}, "is_model": True},
    "experts": {"settings": {"bits": 4, "group_size": 32}, "is_model": True, "family": "qwen3-moe"},
    **{f"{bits}bit-g{group}": {"settings": {"bits": bits, "group_size": group}} for bits, group in ((2, 64), (3, 64), (4, 32), (5, 64), (6, 64), (8, 128))},
    "4bit-g64-f16": {"settings": {"bits": 4, "group_size": 64, "dtype": "float16"}},
    "mxfp4": {"settings": {"mode": "mxfp4", "bits": 4, "group_size": 32}},
    "mxfp8": {"settings": {"mode": "mxfp8", "bits": 8, "group_size": 32}},
}


def numbers_of(tensors, module, own):
    def array(name):
        tensor = tensors[module + name]
        return mx.array(tensor.float().numpy()) if tensor.is_floating_point() else mx.array(tensor.numpy().view(np.uint32) if tensor.dtype in (torch.int32, torch.uint32) else tensor.numpy())
    mode = own.get("mode", "affine")
    biases = [array(".biases")] if mode == "affine" else []
    numbers = mx.dequantize(array(".weight"), array(".scales"), *biases, group_size=own["group_size"], bits=own["bits"], mode=mode)
    return torch.from_numpy(np.array(numbers.astype(mx.float32)))


def quantize(source, target, settings):
    own = settings.get("own", {})

    def predicate(path, module):
        if not hasattr(module, "to_quantized"):
            return False
        return next((setting for name, setting in own.items() if path.endswith(name)), True)
    # As mlx_lm.convert does, which wants a tokenizer. transformers 5 spells some settings in another way than mlx-lm reads.
    settings_of = json.loads((source / "config.json").read_text())
    older = {"num_experts": settings_of.get("num_local_experts"), "rope_theta": (settings_of.get("rope_parameters") or {}).get("rope_theta")}
    older = {key: value for key, value in older.items() if value and key not in settings_of}
    model, config = load_model(source, model_config=older)
    config = {key: value for key, value in config.items() if key not in older}
    model.set_dtype(getattr(mx, settings.get("dtype", "bfloat16")))
    model, config = quantize_model(model, config, settings["group_size"], settings["bits"], mode=settings.get("mode", "affine"), quant_predicate=predicate if own else None)
    save_model(target, model)
    save_config(config, target / "config.json")
    config, tensors = config["quantization"], load_file(target / "model.safetensors")
    modules = [name.removesuffix(".scales") for name in tensors if name.endswith(".scales")]
    numbers = {}
    for module in modules:
        weight = numbers_of(tensors, module, config.get(module, config))
        if "switch_mlp" in module:
            numbers |= {module.replace("switch_mlp", f"experts.{e}") + ".weight": each.contiguous() for e, each in enumerate(weight)}
        else:
            numbers[module + ".weight"] = weight
    return numbers
