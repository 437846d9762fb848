"""torchao 0.18. Its int4 layouts need devices of their own to be written; here they are written as its public code (and that of PyTorch's CUDA kernel) says, from torchao's own quantizers."""
import json

import torch
import transformers as T
from safetensors.torch import save_file
from torchao.core.config import config_to_dict
from torchao.prototype.safetensors.safetensors_support import flatten_tensor_state_dict
from torchao.quantization import (Float8WeightOnlyConfig, Int4WeightOnlyConfig, Int8DynamicActivationInt8WeightConfig, Int8WeightOnlyConfig, IntxWeightOnlyConfig, PerGroup, quantize_)
from torchao.quantization.quant_primitives import MappingType, _choose_qparams_affine_tinygemm, _dequantize_affine_tinygemm, _quantize_affine_tinygemm
from torchao.quantization.utils import pack_tinygemm_scales_and_zeros

CONFIGS = {
    "int8": lambda: Int8WeightOnlyConfig(),
    "int8-g32": lambda: Int8WeightOnlyConfig(granularity=PerGroup(32)),
    "int8-dynamic": lambda: Int8DynamicActivationInt8WeightConfig(),
    "int4-in-bytes": lambda: IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(32), mapping_type=MappingType.ASYMMETRIC),
    "fp8": lambda: Float8WeightOnlyConfig(),
}
CASES = {
    "int4-plain": {"settings": {"write": "plain"}, "is_model": True},
    **{name: {"settings": {"config": name}} for name in CONFIGS},
    "int4-tiles": {"settings": {"write": "tiles"}},
    "int4-words": {"settings": {"write": "words"}},
}
GROUP = 32


def tinygemm(weight):
    """Codes from 0 to 15, scales and the weights of code 8, [outputs, groups]."""
    block = (1, GROUP)
    scale, zero = _choose_qparams_affine_tinygemm(weight, MappingType.ASYMMETRIC, block, torch.int32, 0, 15, scale_dtype=torch.bfloat16, zero_point_dtype=torch.bfloat16)
    codes = _quantize_affine_tinygemm(weight, block, scale, zero, torch.int32, 0, 15)
    numbers = _dequantize_affine_tinygemm(codes, block, scale.float(), zero.float(), torch.int32, 0, 15, output_dtype=torch.float32)
    return codes, scale.reshape(len(weight), -1), zero.reshape(len(weight), -1), numbers


def plain(weight):
    """Int4Tensor."""
    codes, scale, zero, numbers = tinygemm(weight)
    signed = codes - 8
    packed = (signed[:, ::2] & 15 | (signed[:, 1::2] & 15) << 4).to(torch.uint8)
    return {"qdata": packed, "scale": scale.T.contiguous(), "zero_point": zero.T.contiguous()}, numbers


def tiles(weight):
    """Int4TilePackedTo4dTensor: inputs are padded to a multiple of 1024, outputs to one of 8."""
    rows, cols = weight.shape
    padded = torch.nn.functional.pad(weight, (0, -cols % 1024, 0, -rows % 8))
    codes, scale, zero, numbers = tinygemm(padded)
    n, k, inner = *codes.shape, 8
    lane, half = torch.arange(32)[:, None, None], torch.arange(inner // 2)[None, :, None]
    offset = torch.tensor([0, 1, 8, 9, 16, 17, 24, 25])[None, None, :]
    inputs = half * 32 + lane % 4 * 2 + offset  # of each word's values v[0] to v[7]
    blocks = codes.reshape(n // 8, 8, k // (inner * 16), inner * 16)
    values = torch.stack([torch.stack([blocks[tile, lane // 4, outer, inputs] for outer in range(k // (inner * 16))]) for tile in range(n // 8)])
    shifts = torch.tensor([0, 16, 4, 20, 8, 24, 12, 28])
    words = (values.long() << shifts).sum(-1)
    words = torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)
    return {"qdata": words, "scale_and_zero": pack_tinygemm_scales_and_zeros(scale, zero, torch.bfloat16)}, numbers[:rows, :cols]


def words(weight):
    """Int4PlainInt32Tensor, with integers as zero points."""
    codes, scale, _, _ = tinygemm(weight)
    zero = torch.randint(0, 16, scale.shape, generator=torch.Generator().manual_seed(3))
    packed = (codes.unflatten(1, (-1, 8)).long() << 4 * torch.arange(8)).sum(-1)
    packed = torch.where(packed >= 2**31, packed - 2**32, packed).to(torch.int32)
    numbers = (codes - zero.repeat_interleave(GROUP, 1)).float() * scale.float().repeat_interleave(GROUP, 1)
    return {"qdata": packed, "scale": scale.T.contiguous(), "zero_point": zero.T.to(torch.int8).contiguous()}, numbers


def quantize(source, target, settings):
    model = T.AutoModelForCausalLM.from_pretrained(source, dtype=torch.bfloat16)
    linears = {name: module for name, module in model.named_modules() if isinstance(module, torch.nn.Linear) and name != "lm_head"}
    tensors = {name: t for name, t in model.state_dict().items() if name != "lm_head.weight"}
    metadata, numbers = {"format": "pt"}, {}
    if "config" in settings:
        config = CONFIGS[settings["config"]]()
        quantize_(model, config, filter_fn=lambda module, name: name in linears)
        tensors, metadata = flatten_tensor_state_dict({name: t for name, t in model.state_dict().items() if name != "lm_head.weight"})
        for name, module in linears.items():
            numbers[name + ".weight"] = dequantized(module.weight)
    else:
        config = Int4WeightOnlyConfig(group_size=GROUP)
        write = {"plain": plain, "tiles": tiles, "words": words}[settings["write"]]
        for name, module in linears.items():
            parts, numbers[name + ".weight"] = write(tensors.pop(name + ".weight"))
            tensors |= {f"{name}._weight_{key}": t for key, t in parts.items()}
    save_file({name: t.contiguous() for name, t in tensors.items()}, target / "model.safetensors", metadata=metadata)
    text = json.loads((source / "config.json").read_text())
    text["quantization_config"] = {"quant_method": "torchao", "quant_type": {"default": config_to_dict(config)}, "modules_to_not_convert": None}
    (target / "config.json").write_text(json.dumps(text))
    return numbers


def dequantized(weight):
    """In float32: the tensors' own dequantize() rounds to bfloat16, which is checked here."""
    codes, scale = weight.qdata.float(), weight.scale.float()
    zero = getattr(weight, "zero_point", None)
    each = lambda t: t.float().repeat_interleave(weight.shape[1] // t.shape[1], 1)
    numbers = (codes - each(zero)) * each(scale) if zero is not None else codes * each(scale)
    assert torch.allclose(numbers.bfloat16().float(), weight.dequantize().float(), rtol=2**-7, atol=0)
    return numbers
