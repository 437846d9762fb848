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


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def adapter(architecture, shapes, seed):
    """The file, for matrices {name: [outputs, inputs]}. Its numbers are small enough to leave answers sensible."""
    rng = random.Random(seed)
    metadata = [text(key) + struct.pack("<I", TEXT) + text(value) for key, value in
                (("general.type", "adapter"), ("general.architecture", architecture), ("adapter.type", "lora"))]
    metadata.append(text("adapter.lora.alpha") + struct.pack("<If", FLOAT32, 2 * RANK))
    tensors, data = [], bytearray()
    for name, (outputs, inputs) in sorted(shapes.items()):
        for part, rows, columns in (("lora_a", RANK, inputs), ("lora_b", outputs, RANK)):
            tensors.append(text(f"{name}.{part}") + struct.pack("<IQQIQ", 2, columns, rows, 0, len(data)))
            data += struct.pack(f"<{rows * columns}f", *(rng.gauss(0, 0.02) for _ in range(rows * columns)))
            data += bytes(-len(data) % ALIGNMENT)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata)) + b"".join(metadata + tensors)
    return head + bytes(-len(head) % ALIGNMENT) + data


def write_adapters(quire, model, folder, count):
    """{name: path} of adapters of the model, which is a GGUF file or a name of one."""
    done = subprocess.run([quire, "inspect", model, "--json"], stdout=subprocess.PIPE, check=True)
    described = json.loads(done.stdout)
    shapes = {t["name"]: t["shape"] for t in described["tensors"] if CHANGED.fullmatch(t["name"])}
    paths = {f"adapter{i}": folder / f"adapter{i}.gguf" for i in range(count)}
    for seed, path in enumerate(paths.values()):
        path.write_bytes(adapter(described["architecture"], shapes, seed))
    return paths
