"""HQQ 0.2.8, saved as transformers 4.47 and later save it."""
import json

import torch
import transformers as T
from hqq.core.quantize import BaseQuantizeConfig, HQQLinear, Quantizer
from safetensors.torch import load_file, save_file

CASES = {
    "4bit-g64": {"settings": {"nbits": 4, "group_size": 64}, "is_model": True},
    **{f"{bits}bit-g64": {"settings": {"nbits": bits, "group_size": 64}} for bits in (1, 2, 3, 8)},
    "4bit-g32": {"settings": {"nbits": 4, "group_size": 32}},
    "4bit-g8": {"settings": {"nbits": 4, "group_size": 8}},
    "4bit-axis0": {"settings": {"nbits": 4, "group_size": 64, "axis": 0}},
    "3bit-axis0": {"settings": {"nbits": 3, "group_size": 64, "axis": 0}},
    "4bit-rows": {"settings": {"nbits": 4, "group_size": None}},
}


def quantize(source, target, settings):
    settings = {"axis": 1, **settings}
    model = T.AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
    config = BaseQuantizeConfig(**settings)
    tensors, numbers = load_file(source / "model.safetensors"), {}
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) and name != "lm_head":
            linear = HQQLinear(module, config, compute_dtype=torch.float16, device="cpu", del_orig=False)
            del tensors[name + ".weight"]
            tensors |= {f"{name}.{key}": value for key, value in linear.state_dict().items() if value is not None}
            meta = {**linear.meta, "compute_dtype": torch.float32, "scale": linear.meta["scale"].float(), "zero": linear.meta["zero"].float()}
            numbers[name + ".weight"] = Quantizer.dequantize(linear.W_q.data, meta).float()
    save_file({name: t.contiguous() for name, t in tensors.items()}, target / "model.safetensors", metadata={"format": "pt"})
    text = json.loads((source / "config.json").read_text())
    text["quantization_config"] = {"quant_config": config, "quant_method": "hqq", "skip_modules": ["lm_head"]}
    (target / "config.json").write_text(json.dumps(text, default=str))
    return numbers

