#!/usr/bin/env python3
"""Copies quantized models with what tests read of them: trim_quantized.py SOURCE TARGET NAME...

SOURCE and TARGET have a folder per model. Its tokenizer and the logits before quantization stay behind."""
import shutil
import sys
from pathlib import Path

from safetensors.numpy import load_file, save_file

source, target, *names = sys.argv[1:]
for name in names:
    folder = Path(target) / name
    folder.mkdir(parents=True, exist_ok=True)
    for file in ("config.json", "model.safetensors"):
        shutil.copyfile(Path(source) / name / file, folder / file)
    expected = load_file(Path(source) / name / "expected.safetensors")
    save_file({key: expected[key] for key in ("input_ids", "logits", "greedy_tokens")}, folder / "expected.safetensors")
    for file in folder.iterdir():
        file.chmod(0o644)
