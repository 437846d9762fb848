#!/usr/bin/env python3
"""Writes tiny random encoders and rerankers with the hidden states, embeddings and scores that transformers gives: make_encoders.py DATA_DIR [NAME...]

Writes DATA_DIR/encoders/NAME/. README.md there says what a directory holds. Made with transformers 5.19.0 and torch 2.13 on one thread.
"""
import contextlib
import copy
import json
import math
import re
import shutil
import sys
from pathlib import Path
from unittest import mock

import torch
import transformers
from safetensors.torch import load_file, save_file

from encoder_models import SPECS

LENGTHS = (1, 17, 96)
MIN_TOLERANCE = 1e-5  # times the largest value
# transformers' names of NomicBertModel, and those of the published files.
NOMIC_NAMES = [("embeddings.LayerNorm", "emb_ln"), (r"^layers", "encoder.layers"), ("self_attn.o_proj", "attn.out_proj"), ("up_proj", "fc11"), ("gate_proj", "fc12"), ("down_proj", "fc2"),
               ("post_attention_layernorm", "norm1"), ("post_mlp_layernorm", "norm2")]
NOMIC_KEYS = {"n_embd": "hidden_size", "n_head": "num_attention_heads", "n_inner": "intermediate_size", "n_layer": "num_hidden_layers", "n_positions": "max_position_embeddings",
              "layer_norm_epsilon": "layer_norm_eps", "vocab_size": "vocab_size", "type_vocab_size": "type_vocab_size"}


def parsed(spec, config):
    if config["model_type"] == "nomic_bert":  # transformers does not read the published keys
        config = {**{ours: config[theirs] for theirs, ours in NOMIC_KEYS.items()}, "hidden_act": {"swiglu": "silu", "geglu": "gelu"}[config["activation_function"]],
                  "rope_parameters": {"rope_type": "default", "rope_theta": float(config["rotary_emb_base"])}}
    return spec.loader.config_class.from_dict(copy.deepcopy(config))


def pooled(hidden, kind, dense):
    row = {"cls": lambda: hidden[0], "last": lambda: hidden[-1], "mean": lambda: hidden.mean(0)}[kind]()
    for weight in dense:
        row = weight.to(row.dtype) @ row
    return row / row.norm()


class Reference:
    """A saved directory in transformers: float32 arithmetic on the weights as saved, eager attention."""

    def __init__(self, spec, folder, config):
        self.spec, self.folder, self.config = spec, folder, config
        self.model, info = spec.loader.from_pretrained(folder, config=parsed(spec, config), dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
        assert not info["missing_keys"] and not info["mismatched_keys"] and all("position_ids" in name for name in info["unexpected_keys"]), info
        self.model.eval()
        self.dense = [load_file(path)["linear.weight"].float() for path in sorted(folder.glob("*_Dense/model.safetensors"))]

    def changed(self, changes):
        return Reference(self.spec, self.folder, {**self.config, **({"layer_types": None} if "global_attn_every_n_layers" in changes else {}), **changes})

    @torch.no_grad()
    def run(self, ids, types=None, pooling=None, dense=None, score_row=None, **inputs):
        inputs |= {"input_ids": ids[None]} | ({} if types is None else {"token_type_ids": types[None]})
        hidden = self.model.base_model(**inputs).last_hidden_state[0]
        if self.spec.pooling:
            return hidden, pooled(hidden, pooling or self.spec.pooling, self.dense if dense is None else dense)
        return hidden, self.model(**inputs).logits[0] if score_row is None else self.model.score(hidden[score_row])

    @torch.no_grad()
    def run_in_float64(self, ids, types):
        """Whatever transformers casts to float32 stays in float64, and rotary frequencies are computed again."""
        other = copy.deepcopy(self)
        wide = [(torch, "float32", torch.float64), (torch, "float", torch.float64), (torch.Tensor, "float", torch.Tensor.double)]
        with contextlib.ExitStack() as stack:
            for owner, name, value in wide:
                stack.enter_context(mock.patch.object(owner, name, value))
            other.model.double()
            for name, module in list(other.model.named_modules()):
                if name.endswith("rotary_emb"):
                    other.model.set_submodule(name, type(module)(other.model.config))
            hidden, output = other.run(ids, types)
        assert hidden.dtype == output.dtype == torch.float64
        return hidden, output

    @torch.no_grad()
    def attention(self, ids, types):
        """The mean over layers, heads and queries of the largest attention probability."""
        types = {} if types is None else {"token_type_ids": types[None]}
        layers = self.model.base_model(ids[None], output_attentions=True, **types).attentions
        return float(torch.stack([layer.max(-1).values.mean() for layer in layers]).mean())


def shapes_of(spec):
    """Names and shapes as published."""
    shapes = {name: list(value.shape) for name, value in spec.loader(parsed(spec, spec.config)).state_dict().items()}
    if spec.config["model_type"] != "nomic_bert":
        return shapes
    published = {}
    for name, shape in shapes.items():
        for ours, theirs in NOMIC_NAMES:
            name = re.sub(ours, theirs, name)
        if fused := re.fullmatch(r"(.*)self_attn\.[qkv]_proj\.weight", name):
            name, shape = fused[1] + "attn.Wqkv.weight", [3 * shape[0], shape[1]]
        published[name] = shape
    return published


def random_weights(spec, generator):
    """Queries and keys are large enough that attention is far from uniform; no norm, bias or table is trivial."""
    def fill(name, shape):
        noise = torch.randn(shape, generator=generator)
        if name.endswith("bias"):
            return 0.25 * noise
        if len(shape) == 1:
            centre = 1.5 if re.search("[qk]_norm", name) else 1.0
            return centre - (spec.config["model_type"] == "gemma3_text") + 0.2 * noise
        if re.search("position_embeddings|token_type_embeddings", name):
            return 0.6 * noise
        if re.search("embed_tokens|word_embeddings|tok_embeddings", name):
            return noise / (math.sqrt(shape[1]) if spec.config["model_type"] == "gemma3_text" else 1.0)
        gain = torch.full((shape[0], 1), 1.1)
        if re.search(r"query|key|[qk]_lin|[qk]_proj", name):
            gain *= 1.6
        elif "Wqkv" in name:
            gain[:2 * shape[0] // 3] *= 1.6
        elif shape[0] == 1:
            gain *= 3
        return gain * noise / math.sqrt(shape[1])

    weights = {name: fill(name, shape).to(spec.dtype) for name, shape in sorted(shapes_of(spec).items())}
    if spec.position_ids:
        name = next(name for name in weights if name.endswith("position_embeddings.weight"))
        weights[name.replace("embeddings.weight", "ids")] = torch.arange(weights[name].shape[0])[None]
    return weights


def write_json(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2) + "\n")


def write_pipeline(spec, folder, width, generator):
    """The files of sentence-transformers: pooling, dense layers, normalization. The last has no files."""
    modules = ["Transformer", "Pooling", *["Dense"] * len(spec.dense), "Normalize"]
    paths = [f"{i}_{module}" if i else "" for i, module in enumerate(modules)]
    write_json(folder / "modules.json", [{"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{module}"} for i, (path, module) in enumerate(zip(paths, modules))])
    modes = {"cls_token": "cls", "mean_tokens": "mean", "max_tokens": "", "mean_sqrt_len_tokens": "", "weightedmean_tokens": "", "lasttoken": "last"}
    write_json(folder / "1_Pooling/config.json", {"word_embedding_dimension": width} | {f"pooling_mode_{mode}": kind == spec.pooling for mode, kind in modes.items()} | {"include_prompt": True})
    for path, columns, rows in zip(paths[2:], (width, *spec.dense), spec.dense):
        write_json(folder / path / "config.json", {"in_features": columns, "out_features": rows, "bias": False, "activation_function": "torch.nn.modules.linear.Identity"})
        weight = torch.randn((rows, columns), generator=generator) / math.sqrt(columns)
        save_file({"linear.weight": weight.to(spec.dtype)}, folder / path / "model.safetensors", metadata={"format": "pt"})


def prompt_of(spec, length, generator):
    """Ids from 5 up, between the ids that start and end a text. The padding id must not occur: XLM-R does not count it as a position."""
    ids = torch.randint(5, 256, (length,), generator=generator)
    cut = length // 3 if spec.pair else length
    if length > 1:
        for at, id in ((0, spec.start), (cut - 1, spec.end), (-1, spec.end)):
            ids[at] = ids[at] if id is None else id
    has_types = spec.config.get("type_vocab_size", 1) > 1
    return ids, (torch.arange(length) >= cut).long() if has_types and length > 1 else torch.zeros(length, dtype=torch.long) if has_types else None


def largest(values):
    return max(float(value.abs().max()) for value in values)


def rounded_up(value):
    step = 10.0 ** (math.floor(math.log10(value)) - 1)
    return float(f"{math.ceil(value / step) * step:.1e}")


def make(spec, folder):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    generator = torch.Generator().manual_seed(spec.seed)
    dtype = {key: str(spec.dtype).removeprefix("torch.") for key in ("dtype", "torch_dtype") if key in spec.config}
    write_json(folder / "config.json", {**spec.config, **dtype})
    save_file(random_weights(spec, generator), folder / "model.safetensors", metadata={"format": "pt"})
    if spec.pooling:
        write_pipeline(spec, folder, spec.config.get("hidden_size") or spec.config.get("n_embd") or spec.config["dim"], generator)

    reference = Reference(spec, folder, spec.config)
    prompts = [prompt_of(spec, length, generator) for length in LENGTHS]
    results = [reference.run(*prompt) for prompt in prompts]
    exact = [reference.run_in_float64(*prompt) for prompt in prompts]
    kinds = ("hidden", "embedding" if spec.pooling else "score")
    noise = [largest(a[i] - b[i] for a, b in zip(results, exact)) for i in (0, 1)]
    size = [largest(result[i] for result in results) for i in (0, 1)]
    tolerance = [rounded_up(max(30 * n, MIN_TOLERANCE * s)) for n, s in zip(noise, size)]

    expected = {}
    for k, ((ids, types), result) in enumerate(zip(prompts, results)):
        expected |= {f"prompt_{k}": ids} | ({} if types is None else {f"type_{k}": types}) | {f"{kind}_{k}": value.contiguous() for kind, value in zip(kinds, result)}
    save_file(expected, folder / "expected.safetensors")

    changes = {}
    for label, ablation in spec.ablations.items():
        moved = [largest([a - b]) for a, b in zip(ablation(reference, prompts[2]), results[2])]
        assert any(m > 5 * t for m, t in zip(moved, tolerance)), f"{spec.name}: {label} changes only {moved}"
        changes[label] = dict(zip(kinds, (float(f"{m:.2g}") for m in moved)))
    figures = lambda values: dict(zip(kinds, (float(f"{v:.2e}") for v in values)))
    write_json(folder / "expected.json", {
        "like": spec.like, "features": spec.features, "pooling": spec.pooling, "prompt_lengths": LENGTHS, "seed": spec.seed,
        "tolerance": dict(zip(kinds, tolerance)),
        "tolerance_is": "absolute; the larger of 30 times float32_noise and 1e-5 times largest",
        "float32_noise": figures(noise), "float32_noise_is": "the largest difference between transformers in float32 and in float64, over the three prompts",
        "largest": figures(size), "mean_of_the_largest_attention_probability": round(reference.attention(*prompts[2]), 3),
        "change_when_ablated": changes, "change_is": "the largest change over prompt 2 when one feature is switched off",
        "versions": {"torch": torch.__version__.split("+")[0], "transformers": transformers.__version__}})
    weakest = min(max(change[kind] / t for kind, t in zip(kinds, tolerance)) for change in changes.values())
    bytes = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    print(f"{spec.name:18s} {bytes // 1000:4d} kB, largest {size[0]:.2f} {size[1]:.2f}, tolerance {tolerance[0]:.1e} {tolerance[1]:.1e}, weakest ablation {weakest:.0f} tolerances, "
          f"attention {reference.attention(*prompts[2]):.2f}", flush=True)


def main():
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    folder, names = Path(sys.argv[1]) / "encoders", sys.argv[2:]
    for spec in SPECS:
        if not names or spec.name in names:
            make(spec, folder / spec.name)


if __name__ == "__main__":
    main()
