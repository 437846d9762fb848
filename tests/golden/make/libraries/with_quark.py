"""AMD's Quark 0.13."""
import torch
import transformers as T
from quark.torch import ModelQuantizer, export_safetensors
from quark.torch.quantization.config.config import (FP8E4M3PerChannelSpec, FP8E4M3PerTensorSpec, Int4PerGroupSpec, Int8PerChannelSpec, Int8PerTensorSpec, OCP_MXFP4Spec, QConfig, QLayerConfig,
                                                    Uint4PerGroupSpec)
from quark.torch.utils.pack import create_pack_method
from safetensors.torch import load_file

INTEGERS = {"scale_type": "float", "round_method": "half_even", "is_dynamic": False}
SPECS = {
    "uint4": Uint4PerGroupSpec(symmetric=False, ch_axis=1, group_size=32, **INTEGERS),
    "int4": Int4PerGroupSpec(symmetric=True, ch_axis=1, group_size=64, **INTEGERS),
    "int8": Int8PerChannelSpec(symmetric=True, ch_axis=0, **INTEGERS),
    "int8-asym": Int8PerChannelSpec(symmetric=False, ch_axis=0, **INTEGERS),
    "int8-tensor": Int8PerTensorSpec(observer_method="min_max", symmetric=True, **INTEGERS),
    "fp8": FP8E4M3PerTensorSpec(observer_method="min_max", is_dynamic=False),
    "fp8-channel": FP8E4M3PerChannelSpec(is_dynamic=False, ch_axis=0),
    "mxfp4": OCP_MXFP4Spec(ch_axis=-1, is_dynamic=False),
}
CASES = {
    "uint4-mixed": {"settings": {"spec": "uint4", "own": {"*down_proj": "fp8", "*.k_proj": "int4"}}, "is_model": True},
    **{name: {"settings": {"spec": name}} for name in SPECS},
    "uint4-in-order": {"settings": {"spec": "uint4", "pack": "order"}},
}


def numbers_of(tensors, module, spec, pack):
    config = spec.to_quantization_spec()
    kind, scheme = config.dtype.value, config.qscheme.value
    method = create_pack_method(scheme, kind)
    weight, scale = tensors[module + ".weight"], tensors[module + ".weight_scale"]
    if kind == "fp8_e4m3":
        return weight.float() * (scale.float()[:, None] if scale.dim() else scale.float())
    codes = method.unpack(weight, pack == "reorder").float()
    if kind == "fp4":
        return codes * torch.exp2(scale.float() - 127).repeat_interleave(32, 1)
    zero = method.unpack(tensors[module + ".weight_zero_point"], pack == "reorder").float() if scheme == "per_group" else tensors[module + ".weight_zero_point"].float()
    if scheme == "per_group":
        group = codes.shape[1] // scale.shape[0]
        return (codes - zero.repeat_interleave(group, 1)) * scale.float().T.repeat_interleave(group, 1)
    return (codes - (zero[:, None] if zero.dim() else zero)) * (scale.float()[:, None] if scale.dim() else scale.float())


def quantize(source, target, settings):
    model = T.AutoModelForCausalLM.from_pretrained(source, dtype=torch.bfloat16)
    own, pack = settings.get("own", {}), settings.get("pack", "reorder")

    def layer(name):
        return QLayerConfig(weight=SPECS[name].to_quantization_spec())
    config = QConfig(global_quant_config=layer(settings["spec"]), layer_quant_config={pattern: layer(name) for pattern, name in own.items()}, exclude=["lm_head"])
    ids = torch.randint(0, 256, (1, 32), generator=torch.Generator().manual_seed(1))
    quantizer = ModelQuantizer(config)
    model = quantizer.freeze(quantizer.quantize_model(model, torch.utils.data.DataLoader(ids, batch_size=1)))
    export_safetensors(model, target, custom_mode="quark", weight_format="real_quantized", pack_method=pack)
    tensors = load_file(target / "model.safetensors")
    numbers = {}
    for name in tensors:
        if name.endswith(".weight_scale"):
            module = name.removesuffix(".weight_scale")
            spec = next((spec for pattern, spec in own.items() if module.endswith(pattern.strip("*"))), settings["spec"])
            numbers[module + ".weight"] = numbers_of(tensors, module, SPECS[spec], pack)
    return numbers
