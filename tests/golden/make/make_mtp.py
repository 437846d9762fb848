#!/usr/bin/env python3
"""Adds a random layer for multi-token prediction to golden models, with the results of transformers' MtpLayer in float32.

usage: make_mtp.py MODELS_DIR DRAFTERS_DIR

Names are those of published files. `deepseek_v3` has a copy of the embeddings and an output matrix of its own, as has
`glm4_moe`; `qwen3_next` has neither.
"""

import copy
import json
import re
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM
from transformers.modeling_layers import MtpLayer

MODELS, DRAFTERS = map(Path, sys.argv[1:3])
CHAIN = 5
MTP_NAMES = {"eh_proj": "mtp.fc", "enorm": "mtp.pre_fc_norm_embedding", "hnorm": "mtp.pre_fc_norm_hidden", "post_norm": "mtp.norm"}


def fill(layer, random):
    """Random numbers that bfloat16 holds."""
    for name, p in layer.named_parameters():
        if p.dim() > 1:
            new = torch.randn(p.shape, generator=random) * (0.2 if "experts" in name or "eh_proj" in name else 0.3)
        else:  # norms around the weight that changes nothing: 1, or 0 where it is added to 1
            new = p.detach().mean().round() + 0.2 * torch.randn(p.shape, generator=random)
        p.copy_(new.bfloat16())
    for name, b in layer.named_buffers():
        if name.endswith("e_score_correction_bias"):
            b.copy_(0.1 * torch.randn(b.shape, generator=random))


def file_tensors(layer, name_of):
    """The layer's tensors as published files have them: each expert on its own."""
    for name, t in layer.state_dict().items():
        stacked = re.fullmatch(r"(.*\.experts)\.(gate_up|down)_proj", name)
        parts = {name: t}
        if stacked:
            parts = {}
            for e, matrix in enumerate(t):
                halves = matrix.chunk(2) if stacked[2] == "gate_up" else [matrix]
                for half, kind in zip(halves, stacked[2].split("_")):
                    parts[f"{stacked[1]}.{e}.{kind}_proj.weight"] = half
        for part, x in parts.items():
            keep = part.endswith("e_score_correction_bias")
            yield name_of(part), (x.float() if keep else x.bfloat16()).contiguous()


def best(logits):
    values, ids = logits.topk(20)
    return values.float(), ids.int()


@torch.no_grad()
def make(name, seed):
    random = torch.Generator().manual_seed(seed)
    model = AutoModelForCausalLM.from_pretrained(MODELS / name, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager")
    config = copy.deepcopy(model.config)
    config.first_k_dense_replace = 0
    if name == "qwen3_next":
        config.layer_types, config.mlp_only_layers = ["full_attention"], []
    blocks = model.model.layers
    layer = MtpLayer(config, type(blocks[-1]), type(blocks[-1].input_layernorm), 0).eval()
    fill(layer, random)

    tensors = load_file(MODELS / name / "model.safetensors")
    settings = {file: json.loads((MODELS / name / file).read_text()) for file in ("config.json", "config_v4.json")}
    output = model.lm_head.weight
    if name == "qwen3_next":
        def name_of(part):
            for ours, theirs in MTP_NAMES.items():
                part = re.sub(rf"^{ours}\b", theirs, part)
            return part.replace("mtp_block.", "mtp.layers.0.")
    else:
        prefix = f"model.layers.{len(blocks)}."
        for of_file in settings.values():
            of_file["num_nextn_predict_layers"] = 1
        output = (output + 0.1 * output.std() * torch.randn(output.shape, generator=random)).bfloat16().float()
        tensors[prefix + "embed_tokens.weight"] = tensors["model.embed_tokens.weight"].clone()
        tensors[prefix + "shared_head.head.weight"] = output.bfloat16()

        def name_of(part):
            return prefix + part.replace("post_norm", "shared_head.norm").replace("mtp_block.", "")
    tensors.update(file_tensors(layer, name_of))

    def predicted(tokens, features):
        """Of rows 0 .. len(features) - 1; tokens: x[1 ..]."""
        rows = len(features)
        embeddings, positions = model.model.embed_tokens(tokens)[None], torch.arange(rows)[None]
        mask = torch.full((rows, rows), -torch.inf).triu(1)[None, None]
        return layer(embeddings, features[None], position_embeddings=model.model.rotary_emb(embeddings, position_ids=positions),
                     attention_mask=mask, position_ids=positions, past_key_values=None)[0]

    expected = {}
    for n, length in enumerate((11, 37)):
        x = torch.randint(3, config.vocab_size, (length,), generator=random)
        f = model.model(x[None], use_cache=False).last_hidden_state[0]
        p = f"prompt{n}."
        expected[p + "tokens"], expected[p + "target_features"] = x.int(), f
        features = predicted(x[1:], f[:-1])
        logits = features @ output.T
        expected[p + "step1.features_last8"] = features[-8:]
        expected[p + "step1.top20_logits_last8"], expected[p + "step1.top20_ids_last8"] = best(logits[-8:])
        expected[p + "step1.full_logits_last2"] = logits[-2:]
        tokens, features, chain = x, f[:-1], []
        for _ in range(CHAIN):
            last = predicted(tokens[1:], features)[-1]
            chain.append(last @ output.T)
            tokens, features = torch.cat([tokens, chain[-1].argmax()[None]]), torch.cat([features, last[None]])
        chain = torch.stack(chain)
        margins = chain.topk(2).values
        assert (margins[:, 0] - margins[:, 1]).min() > 1e-2, "take another seed: a draft is almost a tie"
        expected[p + "chain.tokens"] = chain.argmax(-1).int()
        expected[p + "chain.top20_logits"], expected[p + "chain.top20_ids"] = best(chain)

    folder = DRAFTERS / f"mtp_{name}"
    folder.mkdir(parents=True, exist_ok=True)
    for file, of_file in settings.items():
        (folder / file).write_text(json.dumps(of_file, indent=2, sort_keys=True) + "\n")
    save_file(tensors, folder / "model.safetensors")
    save_file({k: t.contiguous() for k, t in expected.items()}, folder / "expected.safetensors")


make("deepseek_v3", 3)
make("glm4_moe", 3)
make("qwen3_next", 4)
