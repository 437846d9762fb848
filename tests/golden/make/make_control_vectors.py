#!/usr/bin/env python3
"""Writes random control vectors for a golden model with the logits that they give: make_control_vectors.py ../data

The files are laid out as llama.cpp's cvector-generator does. The reference is float32 arithmetic: transformers, eager attention, one thread, with direction.N added to the output of layer N, as llama.cpp does."""
import json
import sys
from pathlib import Path

import gguf
import torch
import transformers
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

torch.set_num_threads(1)

BASE, PROMPT = "llama", 17
# Of each case: files with their scales, and the layers that they change.
CASES = {"both": ([("first", 1.0), ("second", -0.5)], None), "last_layer": ([("first", 2.0)], (2, 2))}


def directions(model, seed, layers):
    random = torch.Generator().manual_seed(seed)
    return {layer: torch.randn(model.config.hidden_size, generator=random) * 0.2 for layer in layers}


def write(path, model, vectors):
    writer = gguf.GGUFWriter(path, "controlvector")
    writer.add_string("controlvector.model_hint", model.config.model_type)
    writer.add_uint32("controlvector.layer_count", len(vectors))
    for layer, vector in vectors.items():
        writer.add_tensor(f"direction.{layer}", vector.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def logits_with(model, ids, vectors):
    hooks = [model.model.layers[layer].register_forward_hook(lambda _, __, output, v=vector: output + v) for layer, vector in vectors.items()]
    logits = model(ids[None], use_cache=False).logits[0]
    for hook in hooks:
        hook.remove()
    return logits


data = Path(sys.argv[1])
folder = data / "control-vectors"
folder.mkdir(exist_ok=True)
model = AutoModelForCausalLM.from_pretrained(data / "models" / BASE, dtype=torch.float32, attn_implementation="eager").eval()
layers = model.config.num_hidden_layers
files = {"first": directions(model, 1, range(1, layers)), "second": directions(model, 2, [layers - 1])}
for name, vectors in files.items():
    write(folder / f"{name}.gguf", model, vectors)
ids = torch.randint(0, model.config.vocab_size, (PROMPT,), generator=torch.Generator().manual_seed(7))
tensors = {"prompt_0": ids.to(torch.int32)}
for case, (parts, span) in CASES.items():
    first, last = span or (1, layers - 1)
    total = {layer: sum(scale * files[name][layer] for name, scale in parts if layer in files[name]) for layer in range(first, last + 1)}
    with torch.no_grad():
        tensors[f"logits_{case}"] = logits_with(model, ids, total).contiguous()
        change = (tensors[f"logits_{case}"] - model(ids[None], use_cache=False).logits[0]).abs().max()
    assert change > 0.1, change
    print(case, "changes logits by", float(change))
save_file(tensors, folder / "expected.safetensors")
tolerance = json.loads((data / "models" / BASE / "expected.json").read_text())["suggested_tolerance_max_abs_fp32"]
(folder / "expected.json").write_text(json.dumps({"model": BASE, "suggested_tolerance_max_abs_fp32": 2 * tolerance, "computed_by": f"transformers {transformers.__version__}"}, indent=1) + "\n")
