#!/usr/bin/env python3
"""Copies layers of quantized Hugging Face checkpoints with fewer expected rows: every 25th and the last of each matrix.

usage: trim_layers.py SOURCE TARGET   SOURCE has METHOD/CASE/{config.json,layer.safetensors,expected.safetensors}
"""
import json
import shutil
import struct
import sys
from pathlib import Path

STEP = 25


def read(path):
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__", None)
    return {name: (t["shape"], data[8 + size + t["data_offsets"][0] : 8 + size + t["data_offsets"][1]]) for name, t in header.items()}


def write(path, tensors):
    header, end = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + len(data)]}
        end += len(data)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values()))


def trim(case, to):
    to.mkdir(parents=True, exist_ok=True)
    for name in ("config.json", "layer.safetensors"):
        shutil.copyfile(case / name, to / name)
    out = {}
    for name, (shape, data) in read(case / "expected.safetensors").items():
        if name != "weight" and not name.endswith("_out_in"):
            continue
        rows, width = shape[-2], shape[-1] * 4  # of each matrix of a stack
        kept = sorted({*range(0, rows, STEP), rows - 1})
        starts = [(item * rows + row) * width for item in range(len(data) // (rows * width)) for row in kept]
        out[name] = ("F32", [*shape[:-2], len(kept), shape[-1]], b"".join(data[at : at + width] for at in starts))
        out[name + ".rows"] = ("I32", [len(kept)], struct.pack(f"<{len(kept)}i", *kept))
    write(to / "expected.safetensors", out)


source, target = Path(sys.argv[1]), Path(sys.argv[2])
for expected in sorted(source.rglob("expected.safetensors")):
    trim(expected.parent, target / expected.parent.relative_to(source))
