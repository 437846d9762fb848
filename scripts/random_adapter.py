"""Writes LoRA adapters of random numbers for GGUF models, as GGUF files, for load tests."""

import json
import random
import re
import struct
import subprocess

RANK = 8
CHANGED = re.compile(r"blk\.\d+\.attn_[qv]\.weight")  # queries and values
TEXT, FLOAT32 = 8, 6  # types of metadata
ALIGNMENT = 32


def shapes_of(quire, model):
    """{matrix: [outputs, inputs]}"""
    done = subprocess.run([quire, "inspect", model, "--json"], stdout=subprocess.PIPE, check=True)
    return {t["name"]: t["shape"] for t in json.loads(done.stdout)["tensors"] if CHANGED.fullmatch(t["name"])}


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def write_adapter(path, architecture, shapes, seed):
    """Its numbers are small enough to leave answers sensible."""
    rng = random.Random(seed)
    metadata = [text(key) + struct.pack("<I", TEXT) + text(value) for key, value in
                (("general.type", "adapter"), ("general.architecture", architecture), ("adapter.type", "lora"))]
    metadata.append(text("adapter.lora.alpha") + struct.pack("<If", FLOAT32, 2 * RANK))
    tensors, data = [], bytearray()
    for name, (outputs, inputs) in sorted(shapes.items()):
        for part, shape in (("lora_a", (RANK, inputs)), ("lora_b", (outputs, RANK))):
            rows, columns = shape
            tensors.append(text(f"{name}.{part}") + struct.pack("<IQQIQ", 2, columns, rows, 0, len(data)))
            data += struct.pack(f"<{rows * columns}f", *(rng.gauss(0, 0.02) for _ in range(rows * columns)))
            data += bytes(-len(data) % ALIGNMENT)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata)) + b"".join(metadata + tensors)
    path.write_bytes(head + bytes(-len(head) % ALIGNMENT) + data)
