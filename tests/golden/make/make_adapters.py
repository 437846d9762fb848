#!/usr/bin/env python3
"""Writes random LoRA adapters for the golden models with the logits that PEFT gives with them: make_adapters.py ../data [NAME...]

The reference is float32 arithmetic on the weights as saved: PEFT on transformers, eager attention, one thread. The GGUF file is laid out as llama.cpp's convert_lora_to_gguf.py does."""
import json
import sys
from pathlib import Path

import gguf
import numpy as np
import peft
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

torch.set_num_threads(1)

ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
ADAPTERS = {
    "llama": ("llama", torch.bfloat16, dict(r=4, lora_alpha=12, target_modules=ALL)),
    "llama_rslora": ("llama", torch.float32, dict(r=4, lora_alpha=3, target_modules=["q_proj", "up_proj", "down_proj"], use_rslora=True, rank_pattern={"q_proj": 3}, alpha_pattern={"layers.1.mlp.up_proj": 5})),
    "qwen2": ("qwen2", torch.float16, dict(r=5, lora_alpha=10, target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj"])),  # its projections have biases
    "glm": ("glm", torch.float32, dict(r=4, lora_alpha=8, target_modules=["v_proj", "gate_up_proj", "down_proj"])),  # gate and up are one matrix
    "falcon": ("falcon", torch.float32, dict(r=4, lora_alpha=8, target_modules=["query_key_value", "dense"])),  # so are queries, keys and values
    "llama_dora": ("llama", torch.float32, dict(r=4, lora_alpha=8, target_modules=ALL, use_dora=True)),
    "qwen2_dora": ("qwen2", torch.bfloat16, dict(r=3, lora_alpha=6, target_modules=["q_proj", "v_proj", "up_proj"], use_dora=True)),  # biases are not scaled
    "glm_dora": ("glm", torch.float32, dict(r=4, lora_alpha=8, target_modules=["gate_up_proj", "down_proj"], use_dora=True)),
}
PROMPT = 17
GGUF_NAMES = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate"}


def make(data, name, number):
    base, dtype, settings = ADAPTERS[name]
    folder = data / "adapters" / name
    model = AutoModelForCausalLM.from_pretrained(data / "models" / base, dtype=torch.float32, attn_implementation="eager").eval()
    ids = torch.randint(0, model.config.vocab_size, (PROMPT,), generator=torch.Generator().manual_seed(7))
    plain = model(ids[None], use_cache=False).logits[0]
    adapted = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", **settings))
    random = torch.Generator().manual_seed(number)
    for parameter_name, p in adapted.named_parameters():
        if "lora_magnitude_vector" in parameter_name:
            p.data = (p.data * (1 + 0.3 * torch.randn(p.shape, generator=random))).to(dtype).float()
        elif "lora_" in parameter_name:
            p.data = (torch.randn(p.shape, generator=random) * 0.2).to(dtype).float()
    adapted.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)
    config = json.loads((folder / "adapter_config.json").read_text()) | {"base_model_name_or_path": base}
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")
    file = folder / "adapter_model.safetensors"
    save_file({n: t.to(dtype) for n, t in load_file(file).items()}, file)

    again = peft.PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(data / "models" / base, dtype=torch.float32, attn_implementation="eager"), folder).eval()
    logits = again(ids[None], use_cache=False).logits[0]
    assert (logits - plain).abs().max() > 0.3, "the adapter changes little"
    tolerance = json.loads((data / "models" / base / "expected.json").read_text())["suggested_tolerance_max_abs_fp32"]
    save_file({"prompt_0": ids.to(torch.int32), "logits_0": logits.contiguous()}, data / "adapters" / f"{name}.expected.safetensors")
    (data / "adapters" / f"{name}.expected.json").write_text(json.dumps({"model": base, "suggested_tolerance_max_abs_fp32": 2 * tolerance, "computed_by": f"peft {peft.__version__}, transformers {transformers.__version__}"}, indent=1) + "\n")
    print(name, "changes logits by", float((logits - plain).abs().max()))


def to_gguf(data, name):
    folder = data / "adapters" / name
    config = json.loads((folder / "adapter_config.json").read_text())
    writer = gguf.GGUFWriter(data / "adapters" / f"{name}.gguf", name)
    writer.add_string("general.type", "adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", float(config["lora_alpha"]))
    for tensor_name, t in load_file(folder / "adapter_model.safetensors").items():
        layer, module, matrix = tensor_name.removeprefix("base_model.model.model.layers.").removesuffix(".weight").replace(".", " ", 1).replace(".lora_", " ").split()
        writer.add_tensor(f"blk.{layer}.{GGUF_NAMES[module]}.weight.lora_{matrix.lower()}", t.numpy().astype(np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


data = Path(sys.argv[1])
wanted = sys.argv[2:] or list(ADAPTERS)
for number, name in enumerate(ADAPTERS):
    if name in wanted:
        make(data, name, number)
if "qwen2" in wanted:
    to_gguf(data, "qwen2")
