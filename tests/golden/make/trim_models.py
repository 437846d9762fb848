#!/usr/bin/env python3
"""Copies random models with the expectations of their prompt of 17 ids alone: trim_models.py SOURCE TARGET NAME...

SOURCE and TARGET have a folder per model. Logits of longer prompts are most of a folder's size."""

import json
import shutil
import struct
import sys
from pathlib import Path

KEPT = "1"  # prompt_1: 17 ids


def trim(source: Path, target: Path):
    raw = source.read_bytes()
    (size,) = struct.unpack("<Q", raw[:8])
    header, data = json.loads(raw[8 : 8 + size]), raw[8 + size :]
    kept, out = {}, b""
    for name, tensor in header.items():
        if name == "__metadata__" or not name.endswith("_" + KEPT):
            continue
        begin, end = tensor["data_offsets"]
        kept[name[: -len(KEPT)] + "0"] = {**tensor, "data_offsets": [len(out), len(out) + end - begin]}
        out += data[begin:end]
    text = json.dumps(kept).encode()
    text += b" " * (-len(text) % 8)
    target.write_bytes(struct.pack("<Q", len(text)) + text + out)


source, target, *names = sys.argv[1:]
for name in names:
    folder = Path(target) / name
    folder.mkdir(parents=True, exist_ok=True)
    for file in ("config.json", "config_v4.json", "expected.json", "generation_config.json", "model.safetensors"):
        if (Path(source) / name / file).exists():
            shutil.copyfile(Path(source) / name / file, folder / file)
    trim(Path(source) / name / "expected.safetensors", folder / "expected.safetensors")
