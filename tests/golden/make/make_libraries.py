#!/usr/bin/env python3
"""Writes tiny random models and layers that the quantization libraries themselves have quantized: make_libraries.py TARGET [LIBRARY...]

TARGET/hf-models/LIBRARY-CASE has a model with the logits and greedy tokens of its dequantized weights, as make_quantized.py writes them; TARGET/hf-layers/LIBRARY/CASE one matrix, with
every 25th of its rows and the last one as numbers. A file libraries/with_LIBRARY.py has CASES and quantize(source, target, case): it quantizes the model in `source`, saves it in `target` as
the library does, and returns the numbers of quantized matrices by the names of their weights, float32."""
import importlib
import json
import shutil
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import torch
import transformers as T
from golden_models import EAGER, VOCABULARY, logits_of, write_json
from make_quantized import LLAMA, MARGIN, PROMPT, SEEDS, Quantized, greedy, random_tensors
from safetensors import safe_open
from safetensors.torch import load_file, save_file

LIBRARIES = ["modelopt", "auto_round", "mlx", "torchao", "hqq", "quark"]
SMALL = {**LLAMA, "num_hidden_layers": 1, "tie_word_embeddings": True}
WIDE = {**LLAMA, "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 1, "tie_word_embeddings": True}
FAMILIES = {"llama": (T.LlamaConfig, SMALL),
            "qwen3-moe": (T.Qwen3MoeConfig, {**SMALL, "head_dim": 16, "moe_intermediate_size": 32, "num_experts": 4, "num_experts_per_tok": 2})}
MODULE, STEP = "model.layers.0.self_attn.k_proj", 25


@dataclass
class Case:
    settings: dict = field(default_factory=dict)  # of the library
    is_model: bool = False
    module: str = MODULE  # of a layer
    family: str = "llama"  # of a model


def stored_tensors(folder):
    """With the metadata of the file."""
    with safe_open(folder / "model.safetensors", framework="pt") as file:
        return load_file(folder / "model.safetensors"), file.metadata()


def write_layer(case, quantized, numbers, target):
    tensors, _ = stored_tensors(quantized)
    prefix = case.module + "."
    layer = {"proj." + name.removeprefix(prefix): t.contiguous() for name, t in tensors.items() if name.startswith(prefix)}
    save_file(layer, target / "layer.safetensors")
    config = json.loads((quantized / "config.json").read_text())
    write_json(target / "config.json", {key: config[key] for key in ("quantization_config", "quantization") if key in config})
    weight = numbers[case.module + ".weight"]
    rows = sorted({*range(0, len(weight), STEP), len(weight) - 1})
    save_file({"weight": weight[rows].contiguous(), "weight.rows": torch.tensor(rows, dtype=torch.int32)}, target / "expected.safetensors")
    return f"{list(weight.shape)}"


def is_decisive(folder, source, quantized, numbers, seed):
    """The expected values of a model, if they are clear enough."""
    plain, stored = ({name: t for name, t in load_file(path / "model.safetensors").items()} for path in (source, quantized))
    assert set(numbers) <= set(plain), set(numbers) - set(plain)
    # A library may change what it leaves unquantized, such as norms before AWQ's linears.
    plain = {name: (stored[name] if name in stored and stored[name].is_floating_point() and stored[name].shape == t.shape else t).float() for name, t in plain.items()}
    save_file({name: t.contiguous() for name, t in {**plain, **numbers}.items()}, folder / "model.safetensors", metadata={"format": "pt"})
    shutil.copyfile(source / "config.json", folder / "config.json")
    model = T.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **EAGER).eval()
    ids = torch.randint(0, VOCABULARY["vocab_size"], (PROMPT,), generator=torch.Generator().manual_seed(seed))
    logits = logits_of(model, ids)
    tokens, margin = greedy(model, ids.tolist())
    expected = {"input_ids": ids, "logits": logits, "greedy_tokens": torch.tensor(tokens)}
    return margin >= MARGIN and len(set(tokens)) >= 5 and bool(logits.isfinite().all()), expected


def write_model(quantized, expected, target):
    config = json.loads((quantized / "config.json").read_text())
    config.pop("_name_or_path", None)
    write_json(target / "config.json", config)
    shutil.copyfile(quantized / "model.safetensors", target / "model.safetensors")
    if (quantized / "hf_quant_config.json").exists():
        shutil.copyfile(quantized / "hf_quant_config.json", target / "hf_quant_config.json")
    save_file({key: t.contiguous() for key, t in expected.items()}, target / "expected.safetensors")
    return f"largest logit {expected['logits'].abs().max():.1f}"


def make(library, name, case, root):
    method = library.__name__.split("with_")[-1].replace("_", "-")
    target = root / "hf-models" / f"{method}-{name}" if case.is_model else root / "hf-layers" / method / name
    for seed in range(SEEDS if case.is_model else 1):
        with tempfile.TemporaryDirectory() as temporary:
            folders = [Path(temporary) / part for part in ("source", "quantized", "plain")]
            for folder in folders:
                folder.mkdir()
            source, quantized, plain = folders
            with torch.no_grad():
                random_tensors(Quantized(*FAMILIES[case.family] if case.is_model else (T.LlamaConfig, WIDE), None, {}), seed, source)
                numbers = library.quantize(source, quantized, case.settings)
            shutil.rmtree(target, ignore_errors=True)
            target.mkdir(parents=True)
            if not case.is_model:
                about = write_layer(case, quantized, numbers, target)
                break
            with torch.no_grad():
                good, expected = is_decisive(plain, source, quantized, numbers, seed)
            if good:
                about = f"seed {seed}, {write_model(quantized, expected, target)}"
                break
    else:
        raise AssertionError(f"{method} {name}: no seed is decisive")
    for file in target.iterdir():
        file.chmod(0o644)
    print(f"{method} {name}: {about}, {sum(file.stat().st_size for file in target.iterdir()) // 1000} kB", flush=True)


def main():
    target, *names = sys.argv[1:]
    for wanted in names or LIBRARIES:
        wanted, _, only = wanted.partition("/")
        library = importlib.import_module(f"libraries.with_{wanted}")
        for name, case in library.CASES.items():
            if not only or only == name:
                make(library, name, Case(**case), Path(target))


if __name__ == "__main__":
    main()
