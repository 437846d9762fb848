"""Intel's auto-round 0.16, which rounds to the nearest code here."""
import json
import shutil
from pathlib import Path

import torch
import transformers as T
from auto_round import AutoRound
from auto_round_extension.torch.qlinear_torch import QuantLinear
from auto_round_extension.torch.qlinear_torch_zp import QuantLinear as QuantLinearMinusOne
from quantizers import E2M1
from safetensors.torch import load_file
from tokenizers import Tokenizer, models

MIXED = {"model.layers.0.mlp.up_proj": {"bits": 8}, "k_proj": {"bits": 2, "group_size": 64}, "model.layers.0.self_attn.o_proj": {"bits": 16}}
CASES = {
    "mixed": {"settings": {"bits": 4, "group_size": 32, "sym": True, "layer_config": MIXED}, "is_model": True},
    "sym": {"settings": {"bits": 4, "group_size": 128, "sym": True}},
    "asym": {"settings": {"bits": 4, "group_size": 32, "sym": False, "format": "auto_round:auto_gptq"}},
    "gptqmodel": {"settings": {"bits": 4, "group_size": 32, "sym": False, "format": "auto_round:gptqmodel"}},
    "own-3bit": {"settings": {"bits": 3, "group_size": 32, "sym": False}},
    "own-2bit": {"settings": {"bits": 2, "group_size": 32, "sym": False}},
    "awq": {"settings": {"bits": 4, "group_size": 32, "sym": False, "format": "auto_round:auto_awq"}},
    "fp8": {"settings": {"scheme": "FP8_STATIC"}},
    "fp8-blocks": {"settings": {"scheme": "FP8_BLOCK"}, "module": "model.layers.0.mlp.up_proj"},
    "nvfp4": {"settings": {"scheme": "NVFP4"}},
    "mxfp4": {"settings": {"scheme": "MXFP4"}},
    "mxfp8": {"settings": {"scheme": "MXFP8"}},
}


def gptq_numbers(tensors, module, minus_one):
    """The library's own linear of the identity, in float32."""
    qweight, scales = tensors[module + ".qweight"], tensors[module + ".scales"]
    outputs = scales.shape[1]
    bits = tensors[module + ".qzeros"].shape[1] * 32 // outputs
    inputs = qweight.shape[0] * 32 // bits
    linear = (QuantLinearMinusOne if minus_one else QuantLinear)(bits, inputs // scales.shape[0], inputs, outputs, False)
    for name in ("qweight", "qzeros", "scales"):
        setattr(linear, name, tensors[f"{module}.{name}"])
    linear.scales = scales.float()
    return linear(torch.eye(inputs)).T.contiguous()


def awq_numbers(tensors, module):
    shifts = torch.tensor([0, 16, 4, 20, 8, 24, 12, 28])

    def unpack(words):
        return ((words[..., None] >> shifts) & 15).flatten(1)
    codes, zeros, scales = unpack(tensors[module + ".qweight"]), unpack(tensors[module + ".qzeros"]), tensors[module + ".scales"].float()
    group = len(codes) // len(scales)
    return ((codes - zeros.repeat_interleave(group, 0)).float() * scales.repeat_interleave(group, 0)).T.contiguous()


def float_numbers(tensors, module):
    if module + ".weight_scale_inv" in tensors:
        weight, scale = tensors[module + ".weight"].float(), tensors[module + ".weight_scale_inv"].float()
        return weight * scale.repeat_interleave(128, 0)[: len(weight)].repeat_interleave(128, 1)[:, : weight.shape[1]]
    scale = tensors[module + ".weight_scale"]
    if module + ".weight_packed" not in tensors:
        weight = tensors[module + ".weight"].float()
        return weight * (torch.exp2(scale.float() - 127).repeat_interleave(32, 1) if scale.dtype == torch.uint8 else scale.float().reshape(-1, 1))
    packed = tensors[module + ".weight_packed"]
    codes = torch.stack([packed & 15, packed >> 4], 2).flatten(1).long()
    values = E2M1[codes & 7] * (1 - 2 * (codes >> 3))
    if scale.dtype == torch.uint8:
        return values * torch.exp2(scale.float() - 127).repeat_interleave(32, 1)
    return values * (scale.float() / tensors[module + ".weight_global_scale"]).repeat_interleave(16, 1)


def quantize(source, target, settings):
    settings = dict(settings)
    form = settings.pop("format", "auto_round")
    model = T.AutoModelForCausalLM.from_pretrained(source, dtype=torch.bfloat16)
    tokenizer = T.PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({str(i): i for i in range(256)}, unk_token="0")))
    random = torch.Generator().manual_seed(1)
    data = torch.utils.data.DataLoader([torch.randint(0, 256, (32,), generator=random) for _ in range(2)], batch_size=1)
    with torch.enable_grad():
        AutoRound(model, tokenizer, iters=0, disable_opt_rtn=True, nsamples=2, seqlen=32, device_map="cpu", dataset=data, **settings).quantize_and_save(str(target / "saved"), format=form)
    saved = next(Path(target / "saved").rglob("config.json")).parent
    for name in ("config.json", "model.safetensors"):
        shutil.copyfile(saved / name, target / name)
    shutil.rmtree(target / "saved")
    tensors, packing = load_file(target / "model.safetensors"), json.loads((target / "config.json").read_text())["quantization_config"]["packing_format"]
    numbers = {}
    for name in tensors:
        module, _, ending = name.rpartition(".")
        if ending == "scales":
            numbers[module + ".weight"] = awq_numbers(tensors, module) if "awq" in packing else gptq_numbers(tensors, module, packing == "auto_round:auto_gptq")
        elif ending in ("weight_scale", "weight_scale_inv"):
            numbers[module + ".weight"] = float_numbers(tensors, module)
    return numbers
