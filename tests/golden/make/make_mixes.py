#!/usr/bin/env python3
"""Writes which types llama.cpp's mixes give to the tensors of real models, from the snapshots of its own test.

make_mixes.py LLAMA_CPP_DIR DATA_DIR reads LLAMA_CPP_DIR/tests/snapshots/MODEL.schema and writes DATA_DIR/quantize/mixes.json:
{MODEL: {"shape": {n_embd, n_layer, ...}, "mixes": {MIX: {"type": TYPE, "exceptions": {NAME: {TYPE: [layers]}}}}}}, where NAME has {} for the layer."""
import json
import re
import sys
from pathlib import Path

MODELS = ["qwen3-0.6b", "qwen3-14b", "meta-llama-3.1-70b-instruct", "glm-4.6v"]


def read(text):
    shape = {name: int(value) for name, value in re.findall(r"(n_\w+)=(\d+)", text)}
    mixes, current = {}, None
    for line in text.splitlines():
        if head := re.match(r"\[(\w+)\] (\w+)$", line):
            current = mixes[head.group(1)] = {"type": head.group(2).upper(), "exceptions": {}}
        elif line and not line.startswith("#"):
            name, kind = line.split()
            layer = re.match(r"blk\.(\d+)\.", name)
            spelled = re.sub(r"^blk\.\d+\.", "blk.{}.", name)
            current["exceptions"].setdefault(spelled, {}).setdefault(kind.upper(), []).append(int(layer.group(1)) if layer else -1)
    return {"shape": shape, "mixes": mixes}


def main():
    source, data = Path(sys.argv[1]), Path(sys.argv[2])
    found = {model: read((source / "tests/snapshots" / f"{model}.schema").read_text()) for model in MODELS}
    (data / "quantize").mkdir(exist_ok=True)
    (data / "quantize/mixes.json").write_text(json.dumps(found, separators=(",", ":")) + "\n")


main()
