"""NVIDIA's ModelOpt 0.47."""
import copy
import json

import modelopt.torch.quantization as mtq
import torch
import transformers as T
from modelopt.torch.export import export_hf_checkpoint
from modelopt.torch.export.quant_utils import pack_int4_in_uint8
from modelopt.torch.quantization.qtensor import MXFP4QTensor, NVFP4QTensor
from safetensors.torch import load_file

CASES = {
    "nvfp4-kv": {"settings": {"config": "NVFP4_DEFAULT_CFG", "cache": "FP8_KV_CFG"}, "is_model": True},
    "awq": {"settings": {"config": "INT4_AWQ_CFG", "block": 32, "fold": True}, "is_model": True},
    "old-fp8": {"settings": {"config": "FP8_DEFAULT_CFG", "old": True}, "is_model": True},  # only hf_quant_config.json
    "nvfp4": {"settings": {"config": "NVFP4_DEFAULT_CFG"}},
    "mxfp4": {"settings": {"config": "MXFP4_DEFAULT_CFG"}},
    "mxfp8": {"settings": {"config": "MXFP8_DEFAULT_CFG"}},
    "fp8-tensor": {"settings": {"config": "FP8_DEFAULT_CFG"}},
    "fp8-channel": {"settings": {"config": "FP8_PER_CHANNEL_PER_TOKEN_CFG"}},
    "fp8-blocks": {"settings": {"config": "FP8_2D_BLOCKWISE_WEIGHT_ONLY_CFG"}, "module": "model.layers.0.mlp.up_proj"},
    "w4a16-g128": {"settings": {"config": "INT4_AWQ_CFG"}},
    "w4a8-g128": {"settings": {"config": "W4A8_AWQ_BETA_CFG"}},
    "w8a8": {"settings": {"config": "INT8_SMOOTHQUANT_CFG"}},
}


def int4_numbers(tensors, name):
    """ModelOpt has no reader of its own; its writer gives the same bytes for these numbers."""
    packed, scales = tensors[name + ".weight"], tensors[name + ".weight_scale"].float()
    codes = torch.stack([packed & 15, packed >> 4], 1).flatten(0, 1).to(torch.int8)
    codes = torch.where(codes > 7, codes - 16, codes)
    block = codes.shape[1] // scales.shape[1]
    numbers = codes.float() * scales.repeat_interleave(block, 1)
    assert torch.equal(pack_int4_in_uint8(numbers, scales, block), packed)
    return numbers


def numbers_of(tensors, name):
    weight, scale = tensors[name + ".weight"], tensors[name + ".weight_scale"]
    if weight.dtype == torch.float8_e4m3fn and scale.dtype == torch.uint8:
        return weight.float() * torch.exp2(scale.float() - 127).repeat_interleave(32, 1)
    if weight.dtype in (torch.float8_e4m3fn, torch.int8):
        scale = scale.float()
        if scale.numel() == 1 or scale.shape[0] == weight.shape[0]:
            return weight.float() * (scale if scale.numel() == 1 else scale[:, None])
        blocks = scale.reshape(-(-weight.shape[0] // 128), -(-weight.shape[1] // 128))
        return weight.float() * blocks.repeat_interleave(128, 0)[: weight.shape[0]].repeat_interleave(128, 1)[:, : weight.shape[1]]
    shape = torch.Size([weight.shape[0], weight.shape[1] * 2])
    if name + ".weight_scale_2" in tensors and scale.dtype == torch.float8_e4m3fn:
        return NVFP4QTensor(shape, torch.float32, weight).dequantize(dtype=torch.float32, scale=scale, double_scale=tensors[name + ".weight_scale_2"], block_sizes={-1: 16})
    if scale.dtype == torch.uint8:
        return MXFP4QTensor(shape, torch.float32, weight).dequantize(dtype=torch.float32, scale=scale.flatten(), block_sizes={-1: 32}).reshape(shape)
    return int4_numbers(tensors, name)


def with_block(config, size):
    config = copy.deepcopy(config)
    entries = config["quant_cfg"]
    for entry in entries.values() if isinstance(entries, dict) else entries:
        sizes = (entry.get("cfg") or entry) if isinstance(entry, dict) else {}
        for part in sizes if isinstance(sizes, list) else [sizes]:
            if isinstance(part.get("block_sizes"), dict) and -1 in part["block_sizes"]:
                part["block_sizes"][-1] = size
    return config


def quantize(source, target, settings):
    model = T.AutoModelForCausalLM.from_pretrained(source, dtype=torch.bfloat16)
    config = getattr(mtq, settings["config"])
    if "block" in settings:
        config = with_block(config, settings["block"])
    if "cache" in settings:
        cache = getattr(mtq, settings["cache"])["quant_cfg"]
        config = copy.deepcopy(config)
        config["quant_cfg"] = {**config["quant_cfg"], **cache} if isinstance(cache, dict) else [*config["quant_cfg"], *cache]
    ids = torch.randint(0, 256, (2, 32), generator=torch.Generator().manual_seed(1))
    with torch.enable_grad():
        model = mtq.quantize(model, config, lambda m: m(ids))
    export_hf_checkpoint(model, export_dir=target)
    if settings.get("old"):
        path = target / "config.json"
        path.write_text(json.dumps({key: value for key, value in json.loads(path.read_text()).items() if key != "quantization_config"}))
    tensors = load_file(target / "model.safetensors")
    modules = [name.removesuffix(".weight_scale") for name in tensors if name.endswith(".weight_scale")]
    numbers = {module + ".weight": numbers_of(tensors, module).float() for module in modules}
    for module in modules if settings.get("fold") else []:  # the factors of inputs, so that transformers need not know them
        if module + ".pre_quant_scale" in tensors:
            numbers[module + ".weight"] *= tensors[module + ".pre_quant_scale"].float()
    return numbers
