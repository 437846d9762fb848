#!/usr/bin/env python3
"""Writes random drafters for the golden model `llama`, with the results that their equations give in float64.

usage: make_drafters.py MODELS_DIR DRAFTERS_DIR
"""

import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel

MODELS, DRAFTERS = map(Path, sys.argv[1:3])
MLP, HEADS, CHAIN = 96, 3, 5

model = AutoModel.from_pretrained(MODELS / "llama", dtype=torch.float32, attn_implementation="eager")
target = {name: w.double() for name, w in load_file(MODELS / "llama/model.safetensors").items()}
E, NORM, OUT = target["model.embed_tokens.weight"], target["model.norm.weight"], target["lm_head.weight"]
c = model.config
HIDDEN, DIM, Q, KV = c.hidden_size, c.head_dim, c.num_attention_heads, c.num_key_value_heads
random = torch.Generator().manual_seed(15)


def normal(*shape, scale):
    return (torch.randn(*shape, generator=random) * scale).bfloat16()


def norm(x, weight):
    return x * (x.pow(2).mean(-1, keepdim=True) + c.rms_norm_eps).rsqrt() * weight


def silu(x):
    return x * torch.sigmoid(x)


def rotate(x, positions):  # [rows, heads, DIM], halves
    angles = positions[:, None] / c.rope_parameters["rope_theta"] ** (torch.arange(0, DIM, 2, dtype=torch.float64) / DIM)
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]
    a, b = x.split(DIM // 2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def eagle_rows(w, tokens, features):
    """The predicted features of rows 0 .. len(features) - 1; tokens: x[1 ..]."""
    rows = len(features)
    z = torch.cat([E[tokens], features], -1) @ w["fc.weight"].T
    h = norm(z, w["layer.input_layernorm.weight"])
    q, k, v = ((h @ w[f"layer.self_attn.{x}_proj.weight"].T).view(rows, -1, DIM) for x in "qkv")
    positions = torch.arange(rows, dtype=torch.float64)
    q, k = rotate(q, positions), rotate(k, positions)
    k, v = (x.repeat_interleave(Q // KV, 1) for x in (k, v))
    scores = torch.einsum("ihd,jhd->hij", q, k) / DIM**0.5
    scores = scores.masked_fill(torch.ones(rows, rows).triu(1).bool(), -torch.inf).softmax(-1)
    z = z + torch.einsum("hij,jhd->ihd", scores, v).reshape(rows, -1) @ w["layer.self_attn.o_proj.weight"].T
    u = norm(z, w["layer.post_attention_layernorm.weight"])
    gate, up = (u @ w[f"layer.mlp.{x}_proj.weight"].T for x in ("gate", "up"))
    return norm(z + (silu(gate) * up) @ w["layer.mlp.down_proj.weight"].T, NORM)


def best(logits):
    values, ids = logits.topk(20)
    return values.float(), ids.int()


eagle = {
    "fc.weight": normal(HIDDEN, 2 * HIDDEN, scale=0.15),
    "layer.input_layernorm.weight": (1 + normal(HIDDEN, scale=0.2)).bfloat16(),
    "layer.self_attn.q_proj.weight": normal(Q * DIM, HIDDEN, scale=0.25),
    "layer.self_attn.k_proj.weight": normal(KV * DIM, HIDDEN, scale=0.25),
    "layer.self_attn.v_proj.weight": normal(KV * DIM, HIDDEN, scale=0.25),
    "layer.self_attn.o_proj.weight": normal(HIDDEN, Q * DIM, scale=0.25),
    "layer.post_attention_layernorm.weight": (1 + normal(HIDDEN, scale=0.2)).bfloat16(),
    "layer.mlp.gate_proj.weight": normal(MLP, HIDDEN, scale=0.2),
    "layer.mlp.up_proj.weight": normal(MLP, HIDDEN, scale=0.2),
    "layer.mlp.down_proj.weight": normal(HIDDEN, MLP, scale=0.2),
}
medusa = {}
for head in range(HEADS):
    medusa[f"heads.{head}.weight"] = normal(HIDDEN, HIDDEN, scale=0.2)
    medusa[f"heads.{head}.bias"] = normal(HIDDEN, scale=0.3)

of_eagle, of_medusa = {}, {}
for n, length in enumerate((11, 37)):
    x = torch.randint(3, c.vocab_size, (length,), generator=random)
    with torch.inference_mode():
        f = model(x[None]).last_hidden_state[0].double()
    p = f"prompt{n}."
    for out in (of_eagle, of_medusa):
        out[p + "tokens"], out[p + "target_features"] = x.int(), f.float()
    w = {name: t.double() for name, t in eagle.items()}
    predicted = eagle_rows(w, x[1:], f[:-1])
    logits = predicted @ OUT.T
    of_eagle[p + "step1.features_last8"] = predicted[-8:].float()
    of_eagle[p + "step1.top20_logits_last8"], of_eagle[p + "step1.top20_ids_last8"] = best(logits[-8:])
    of_eagle[p + "step1.full_logits_last2"] = logits[-2:].float()
    tokens, features, chain = x, f[:-1], []
    for _ in range(CHAIN):
        last = eagle_rows(w, tokens[1:], features)[-1]
        chain.append(last @ OUT.T)
        tokens, features = torch.cat([tokens, chain[-1].argmax()[None]]), torch.cat([features, last[None]])
    chain = torch.stack(chain)
    margins = chain.topk(2).values
    assert (margins[:, 0] - margins[:, 1]).min() > 1e-3, "take another seed: a draft is almost a tie"
    of_eagle[p + "chain.tokens"] = chain.argmax(-1).int()
    of_eagle[p + "chain.top20_logits"], of_eagle[p + "chain.top20_ids"] = best(chain)
    for k in range(1, HEADS + 1):
        w, b = (medusa[f"heads.{k - 1}.{part}"].double() for part in ("weight", "bias"))
        logits = (f + silu(f @ w.T + b)) @ OUT.T
        of_medusa[p + f"head{k}.top20_logits_last8"], of_medusa[p + f"head{k}.top20_ids_last8"] = best(logits[-8:])
        if k == 1:
            of_medusa[p + "head1.full_logits_last2"] = logits[-2:].float()

for name, weights, expected in (("eagle", eagle, of_eagle), ("medusa", medusa, of_medusa)):
    folder = DRAFTERS / name
    folder.mkdir(parents=True, exist_ok=True)
    save_file({k: t.contiguous() for k, t in weights.items()}, folder / "model.safetensors")
    save_file({k: t.contiguous() for k, t in expected.items()}, folder / "expected.safetensors")
