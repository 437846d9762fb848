"""Writes LoRA adapters of random numbers, in PEFT's form, for load tests."""

import json
import random
import re
import struct
import subprocess

RANK = 8
# Matrices of attention, by their names in GGUF files and in Hugging Face directories.
GGUF_NAME = re.compile(r"blk\.(\d+)\.attn_([qv])\.weight")
HF_NAME = re.compile(r"model\.layers\.(\d+)\.self_attn\.([qv])_proj\.weight")


def shapes_of(quire, model):
    """{(layer, "q" or "v"): [outputs, inputs]}"""
    done = subprocess.run([quire, "inspect", model, "--json"], stdout=subprocess.PIPE, check=True)
    found = {}
    for tensor in json.loads(done.stdout)["tensors"]:
        if match := GGUF_NAME.fullmatch(tensor["name"]) or HF_NAME.fullmatch(tensor["name"]):
            found[int(match[1]), match[2]] = tensor["shape"]
    return found


def write_adapter(folder, shapes, seed):
    """An adapter of the queries and values, small enough to leave answers sensible."""
    rng = random.Random(seed)
    header, data = {}, bytearray()
    for (layer, letter), (outputs, inputs) in sorted(shapes.items()):
        for part, shape in (("A", [RANK, inputs]), ("B", [outputs, RANK])):
            values = [rng.gauss(0, 0.02) for _ in range(shape[0] * shape[1])]
            begin = len(data)
            data += struct.pack(f"<{len(values)}f", *values)
            name = f"base_model.model.model.layers.{layer}.self_attn.{letter}_proj.lora_{part}.weight"
            header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, len(data)]}
    text = json.dumps(header).encode()
    folder.mkdir(parents=True)
    (folder / "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    config = {"peft_type": "LORA", "r": RANK, "lora_alpha": 2 * RANK, "target_modules": ["q_proj", "v_proj"]}
    (folder / "adapter_config.json").write_text(json.dumps(config))
