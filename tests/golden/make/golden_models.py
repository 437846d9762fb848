"""Makes a tiny random model and what transformers computes with it. make_models.py says which models.

The reference is float32 arithmetic on the weights as saved: eager attention, one thread. Seeds are tried until it is decisive: no near-tie in a greedy step, and rounding moves no
logit (a router's choice, say) by more than MOST_TOLERANCE."""
import copy
import json
import math
import platform
import re
import shutil
from dataclasses import dataclass, field
from typing import Callable

import safetensors
import torch
import transformers
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
torch.set_num_threads(1)

PROMPT, STEPS, SEEDS, MOST_TOLERANCE = 17, 48, 30, 0.004
VOCABULARY = {"vocab_size": 256, "max_position_embeddings": 512, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
EAGER = {"attn_implementation": "eager", "experts_implementation": "eager"}
DELETE = object()

# How weights are drawn: the first pattern that is found in the name decides. (low, high): uniform; a number: normal with this deviation.
WEIGHTS = [(r"final.*norm.*weight$|model\.norm\.weight$", (1.0, 3.0)), (r"(norm|ln_\w+|ln_f)[^.]*\.weight$", (0.5, 1.5)), (r"e_score_correction|expert_bias|moe_statics", 0.3), (r"bias$", 0.15), (r"(router|gate|wg)\.weight$", 0.25),
           (r"A_log$", (-2.0, 1.0)), (r"dt_bias$", (-2.0, 1.0)), (r"\.D$", (0.5, 1.5)), (r"conv(1d)?\.weight$", 0.5), (r"(embed|wte|lm_head|embed_out)[^.]*\.weight$", 0.25),
           (r"[._](q|k)_proj\.weight$|query_key_value|Wqkv|c_attn|qkv_proj", 0.22), (r"", 0.17)]


@dataclass
class Model:
    about: str
    config: type
    settings: dict
    off: dict  # what must move the logits: name -> settings to change (a dict), or a function of the model
    weights: list = field(default_factory=list)  # as WEIGHTS, which they precede
    v4: dict = field(default_factory=dict)  # how config_v4.json differs beyond the usual
    keep: str = r"e_score_correction_bias$"  # names of tensors that files hold in float32
    dtype: torch.dtype = torch.bfloat16
    mend: Callable = lambda model: None  # where transformers differs from what the models were trained with
    publish: Callable = lambda folder, config: None  # rewrites the files as they are published
    seed: int = 0


def fill(pattern, value):
    """Sets the weights of that name."""
    def run(model):
        found = [p for name, p in all_tensors(model) if re.search(pattern, name)]
        assert found, pattern
        for p in found:
            p.fill_(value)
    return run


def last_tap(model):
    """Convolutions that see the newest input alone."""
    found = [p for name, p in model.named_parameters() if re.search(r"conv(1d)?\.weight$", name)]
    assert found
    for p in found:
        p[..., :-1] = 0


def all_tensors(model):
    return list(model.named_parameters()) + [(n, b) for n, b in model.named_buffers() if "inv_freq" not in n and b.is_floating_point()]


def draw(model, spec, random):
    rules = spec.weights + WEIGHTS
    for name, p in all_tensors(model):
        how = next(how for pattern, how in rules if re.search(pattern, name))
        if isinstance(how, tuple):
            p.copy_(torch.rand(p.shape, generator=random) * (how[1] - how[0]) + how[0])
        else:
            p.copy_(torch.randn(p.shape, generator=random) * how)


def logits_of(model, ids):
    return model(torch.as_tensor(ids)[None], use_cache=False).logits[0].float()


def greedy(model, ids):
    """Tokens and margins by passes over the whole sequence, without a cache."""
    ids, margins = list(ids), []
    for _ in range(STEPS):
        best = logits_of(model, ids)[-1].topk(2)
        ids.append(int(best.indices[0]))
        margins.append(float(best.values[0] - best.values[1]))
    return ids[-STEPS:], margins


def load(folder, spec):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **EAGER).eval()
    spec.mend(model)
    return model


def rounding(model, ids, logits):
    """How far one unit in the last place of weights and rotary frequencies moves the logits."""
    largest = 0.0
    for trial in range(3):
        noisy, random = copy.deepcopy(model), torch.Generator().manual_seed(100 + trial)
        for name, p in list(noisy.named_parameters()) + list(noisy.named_buffers()):
            if p.is_floating_point():
                noise = torch.randn(p.shape, generator=random)
                p.mul_(1 + (1.2e-7 * noise.sign() if "inv_freq" in name else 6e-8 * noise))
        largest = max(largest, float((logits_of(noisy, ids) - logits).abs().max()))
    return largest


def attempt(spec, seed, folder):
    shutil.rmtree(folder, ignore_errors=True)
    random = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(spec.config(**copy.deepcopy({**VOCABULARY, **spec.settings})), dtype=torch.float32, **EAGER).eval()
    draw(model, spec, random)
    for name, p in all_tensors(model):  # rounded, but for those that files hold in float32
        owner, leaf = model.get_submodule(name.rpartition(".")[0]), name.rpartition(".")[2]
        if re.search(spec.keep, name):
            continue
        if leaf in owner._parameters:
            p.data = p.data.to(spec.dtype)
        else:
            setattr(owner, leaf, p.to(spec.dtype))
    model.config.dtype = spec.dtype
    model.save_pretrained(folder)
    model = load(folder, spec)
    ids = torch.randint(0, VOCABULARY["vocab_size"], (PROMPT,), generator=random)
    logits = logits_of(model, ids)
    tokens, margins = greedy(model, ids.tolist())
    ulp = rounding(model, ids.tolist() + tokens, logits_of(model, ids.tolist() + tokens))
    tolerance = max(5e-4, math.ceil(12e4 * ulp) / 1e4)
    good = tolerance <= MOST_TOLERANCE and min(margins) > max(1e-3, 2 * tolerance) and len(set(tokens)) >= 6 and bool(torch.isfinite(logits).all())
    return good, model, ids, logits, tokens, margins, ulp, tolerance


def without(model, change, spec):
    """The model with a feature switched off."""
    if callable(change):
        other = copy.deepcopy(model)
        change(other)
        return other
    config = {**copy.deepcopy(model.config.to_dict()), **change}
    other = AutoModelForCausalLM.from_config(spec.config.from_dict(config), dtype=torch.float32, **EAGER).eval()
    missing, _ = other.load_state_dict(model.state_dict(), strict=False)
    assert not missing, missing
    spec.mend(other)
    return other


def older_spelling(config, changes):
    """config.json as transformers 4 wrote it."""
    old = copy.deepcopy(config)
    old["torch_dtype"] = old.pop("dtype")
    old["transformers_version"] = "4.51.0"
    rope = old.pop("rope_parameters", None) or {}
    rope = rope.get("full_attention", rope)
    if rope:
        old["rope_theta"] = rope["rope_theta"]
        if "partial_rotary_factor" in rope:
            old["partial_rotary_factor"] = rope["partial_rotary_factor"]
        scaling = {k: v for k, v in rope.items() if k not in ("rope_theta", "partial_rotary_factor")}
        old["rope_scaling"] = None if scaling["rope_type"] == "default" else scaling
    return {k: v for k, v in {**old, **changes}.items() if v is not DELETE}


def write_json(path, value):
    path.write_text(json.dumps(value, indent=1, sort_keys=True) + "\n")


@torch.no_grad()
def make(name, spec, folder):
    seed = next((s for s in range(spec.seed, spec.seed + SEEDS) if attempt(spec, s, folder)[0]), None)
    assert seed is not None, f"{name}: no seed gives a decisive model: {[attempt(spec, s, folder)[4:] for s in range(2)]}"
    _, model, ids, logits, tokens, margins, ulp, tolerance = attempt(spec, seed, folder)

    moved = {label: round(float((logits_of(without(model, change, spec), ids) - logits).abs().max()), 4) for label, change in spec.off.items()}
    assert all(by >= max(0.05, 20 * tolerance) for by in moved.values()), f"{name}: tolerance {tolerance}, but {moved}"

    config = json.loads((folder / "config.json").read_text())
    config.pop("_name_or_path", None)
    old = older_spelling(config, spec.v4)
    reread = AutoModelForCausalLM.from_config(spec.config.from_dict(copy.deepcopy(old)), dtype=torch.float32, **EAGER).eval()
    reread.load_state_dict(model.state_dict())
    spec.mend(reread)
    assert torch.equal(logits_of(reread, ids), logits), f"{name}: the older spelling is another model"
    write_json(folder / "config.json", config)
    write_json(folder / "config_v4.json", old)
    spec.publish(folder, config)

    save_file({"prompt_0": ids, "logits_0": logits.contiguous(), "greedy_0": torch.tensor(tokens), "margin_0": torch.tensor(margins)}, folder / "expected.safetensors")
    with safe_open(folder / "model.safetensors", "pt") as f:
        types = sorted({f.get_slice(k).get_dtype() for k in f.keys()})
    write_json(folder / "expected.json", {
        "description": spec.about, "transformers_class": type(model).__name__, "weights_dtype": types, "seed": seed,
        "computed_in": "float32 from the saved weights, eager attention and experts, transformers' torch code for recurrent layers, CPU, 1 thread",
        "suggested_tolerance_max_abs_fp32": tolerance,
        "checks": {"logit_change_from_one_ulp_noise": float(f"{ulp:.2e}"), "logit_abs_max": round(float(logits.abs().max()), 3), "min_margin": round(min(margins), 5), "distinct_greedy_tokens": len(set(tokens)),
                   "logit_change_when_off": moved},
        "versions": {"torch": torch.__version__.split("+")[0], "transformers": transformers.__version__, "safetensors": safetensors.__version__, "python": platform.python_version()}})
    for file in folder.iterdir():
        file.chmod(0o644)
    size = sum(f.stat().st_size for f in folder.iterdir())
    print(f"{name:20s} seed {seed} {size / 1e3:.0f} kB tolerance {tolerance} margin {min(margins):.4f} tokens {len(set(tokens))} {moved}", flush=True)


def rename_tensors(folder, change):
    """change: a dict of the file's tensors to another."""
    path = folder / "model.safetensors"
    save_file({k: v.contiguous() for k, v in change(load_file(path)).items()}, path, metadata={"format": "pt"})
