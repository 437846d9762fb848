#!/usr/bin/env python3
"""Writes small GGUF files and what they must give: a random model with a tensor of every weight type, and two vocabularies.

make_gguf.py DATA_DIR reads DATA_DIR/tokenizers and writes
  formats/gguf-models/every-type.gguf, every-type.ref.safetensors   logits and greedy tokens, computed here in float64 from the weights as gguf-py reads them
  vocab/{byte_level,byte_fallback}.{gguf,jsonl}                     ids of the tokenizers library, with which llama.cpp agrees on these texts
"""
import json
import re
import sys
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType as T
from gguf import quants
from safetensors.numpy import save_file
from tokenizers import Tokenizer

import strings

HIDDEN, FFN, LAYERS, HEADS, KV_HEADS, CONTEXT, EPSILON, THETA = 256, 256, 2, 8, 2, 256, 1e-5, 10000.0
TYPES = {"token_embd": T.Q8_0, "output": T.Q6_K,
         "blk.0.attn_q": T.Q4_0, "blk.0.attn_k": T.F32, "blk.0.attn_v": T.F16, "blk.0.attn_output": T.Q4_1, "blk.0.ffn_gate": T.Q5_0, "blk.0.ffn_up": T.Q5_1, "blk.0.ffn_down": T.Q4_K,
         "blk.1.attn_q": T.Q5_K, "blk.1.attn_k": T.BF16, "blk.1.attn_v": T.Q8_0, "blk.1.attn_output": T.Q6_K, "blk.1.ffn_gate": T.Q4_K, "blk.1.ffn_up": T.Q5_K, "blk.1.ffn_down": T.Q4_0}


def random_k_blocks(random, type, rows, columns, deviation):
    """Random bits with scales that give the weights a mean near zero and the deviation asked for. gguf-py cannot quantize to K types, only read them."""
    elements, size = gguf.GGML_QUANT_SIZES[type]
    blocks = random.integers(0, 256, (rows * columns // elements, size), dtype=np.uint8)

    def scale(d):
        half = lambda x: np.frombuffer(np.array(x, np.float16).tobytes(), np.uint8)
        if type == T.Q6_K:
            blocks[:, -2:] = half(d)
        else:  # value = d * scale * q - dmin * min, of the same scales on average
            blocks[:, :2], blocks[:, 2:4] = half(d), half(d * (7.5 if type == T.Q4_K else 15.5))

    scale(2.0**-10)
    found = quants.dequantize(blocks, type).std()
    scale(2.0**-10 * deviation / found)
    return blocks.reshape(rows, -1)


def quantized(random, type, rows, columns, deviation):
    if type in (T.Q4_K, T.Q5_K, T.Q6_K):
        return random_k_blocks(random, type, rows, columns, deviation)
    weights = (random.standard_normal((rows, columns)) * deviation).astype(np.float32)
    return quants.quantize(weights, type)


def forward(weights, tokens):
    """A plain llama. Rotary pairs are neighbours (2i, 2i+1), as in every GGUF of this architecture."""
    head = HIDDEN // HEADS
    angle = np.outer(np.arange(len(tokens)), THETA ** (-np.arange(0, head, 2) / head))[:, None]

    def norm(x, g):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPSILON) * g

    def rotate(x):
        even, odd = x[..., 0::2], x[..., 1::2]
        return np.stack([even * np.cos(angle) - odd * np.sin(angle), even * np.sin(angle) + odd * np.cos(angle)], -1).reshape(x.shape)

    x = weights["token_embd"][tokens]
    for layer in range(LAYERS):
        w = {name.split(".")[2]: value for name, value in weights.items() if name.startswith(f"blk.{layer}.")}
        y = norm(x, w["attn_norm"])
        q = rotate((y @ w["attn_q"].T).reshape(-1, HEADS, head))
        k = rotate((y @ w["attn_k"].T).reshape(-1, KV_HEADS, head)).repeat(HEADS // KV_HEADS, 1)
        v = (y @ w["attn_v"].T).reshape(-1, KV_HEADS, head).repeat(HEADS // KV_HEADS, 1)
        scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(head) + np.triu(np.full((len(tokens),) * 2, -np.inf), 1)
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        x = x + np.einsum("hqk,khd->qhd", scores / scores.sum(-1, keepdims=True), v).reshape(-1, HIDDEN) @ w["attn_output"].T
        y = norm(x, w["ffn_norm"])
        gate = y @ w["ffn_gate"].T
        x = x + (gate / (1 + np.exp(-gate)) * (y @ w["ffn_up"].T)) @ w["ffn_down"].T
    return norm(x, weights["output_norm"]) @ weights["output"].T


def add_sentencepiece(writer, tokenizer):
    vocab = sorted(tokenizer["model"]["vocab"].items(), key=lambda item: item[1])
    kinds = [2, 3, 3] + [6] * 256 + [1] * (len(vocab) - 259)
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([text for text, _ in vocab])
    writer.add_token_scores([float(-i) if i >= 259 else 0.0 for i in range(len(vocab))])
    writer.add_token_types(kinds)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(True)
    writer.add_add_space_prefix(True)
    return len(vocab)


def add_byte_level(writer, tokenizer):
    texts = {id: text for text, id in tokenizer["model"]["vocab"].items()} | {a["id"]: a["content"] for a in tokenizer["added_tokens"] if a["special"]}
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("olmo")  # the pattern of GPT-2, without its clean-up of spaces
    writer.add_token_list([texts.get(id, f"[unused{id}]") for id in range(max(texts) + 1)])
    writer.add_token_types([1 if id in tokenizer["model"]["vocab"].values() else 3 if id in texts else 5 for id in range(max(texts) + 1)])
    writer.add_token_merges([" ".join(m) for m in tokenizer["model"]["merges"]])
    end = next(a["id"] for a in tokenizer["added_tokens"] if a["content"] == "<|end|>")
    writer.add_bos_token_id(end)
    writer.add_eos_token_id(end)


def close(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_model(folder, tokenizer):
    random = np.random.default_rng(20)
    path = folder / "every-type.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("every-type")
    vocab = add_sentencepiece(writer, tokenizer)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(EPSILON)
    writer.add_rope_dimension_count(HIDDEN // HEADS)
    writer.add_rope_freq_base(THETA)
    writer.add_vocab_size(vocab)
    for name, type in TYPES.items():
        rows = {"token_embd": vocab, "output": vocab}.get(name, HIDDEN // HEADS * KV_HEADS if re.search("attn_[kv]", name) else HIDDEN)
        gain = 11.0 if name == "token_embd" else 3.0 if name == "output" else 1.8 if re.search("attn_[qk]", name) else 1.1
        writer.add_tensor(name + ".weight", quantized(random, type, rows, HIDDEN, gain / 16), raw_dtype=type)
    for name in ["output_norm", *(f"blk.{i}.{kind}_norm" for i in range(LAYERS) for kind in ("attn", "ffn"))]:
        writer.add_tensor(name + ".weight", (1 + 0.2 * random.standard_normal(HIDDEN)).astype(np.float32))
    close(writer)

    weights, types = {}, {}
    for t in gguf.GGUFReader(path).tensors:
        shape = [int(n) for n in reversed(t.shape)]
        weights[t.name.removesuffix(".weight")] = np.array(quants.dequantize(t.data, t.tensor_type), np.float64).reshape(shape)
        types[t.tensor_type.name] = types.get(t.tensor_type.name, 0) + 1
    prompt = [1, *random.integers(259, vocab, 19).tolist()]
    tokens, logits, margin = list(prompt), [], []
    for _ in range(32):
        row = forward(weights, tokens)[-1]
        best = np.sort(row)[-2:]
        margin.append(best[1] - best[0])
        logits.append(row)
        tokens.append(int(row.argmax()))
    print(f"every-type.gguf: {path.stat().st_size} bytes, logits' deviation {logits[0].std():.2f}, smallest margin {min(margin):.4f}")
    save_file({"prompt": np.array(prompt, np.int32), "torch_tokens": np.array(tokens[len(prompt):], np.int32), "torch_logits": np.array(logits[:8], np.float32),
               "torch_prompt_logits": forward(weights, prompt).astype(np.float32)}, path.with_suffix(".ref.safetensors"))
    (folder / "index.json").write_text(json.dumps({"files": {path.name: {"tensor_types": types}}}, indent=1) + "\n")


def write_vocabulary(folder, name, data):
    tokenizer = json.loads((data / name / "tokenizer.json").read_text())
    writer = gguf.GGUFWriter(folder / f"{name}.gguf", "llama")
    (add_sentencepiece if name == "byte_fallback" else add_byte_level)(writer, tokenizer)
    close(writer)
    # Without added tokens, whose texts llama.cpp treats differently; normalized ones would also be found in plain text.
    model = Tokenizer.from_str(json.dumps({**tokenizer, "added_tokens": [], "post_processor": None}))
    bos = [1] if name == "byte_fallback" else []
    with open(folder / f"{name}.jsonl", "w", newline="\n") as out:
        for text in strings.uniq(strings.common() + strings.fuzz(40, 3)):
            if re.search(r"<\|?(s|/s|unk|end|user|0x..)\|?>", text):
                continue
            ids = model.encode(text, add_special_tokens=False).ids
            out.write(json.dumps({"text": text, "ids": ids, "ids_add": bos + ids, "ids_parse": ids, "ids_add_parse": bos + ids, "detok": text.replace("▁", " ") if bos else text}) + "\n")


def main():
    data = Path(sys.argv[1])
    for folder in ("formats/gguf-models", "vocab"):
        (data / folder).mkdir(parents=True, exist_ok=True)
    write_model(data / "formats/gguf-models", json.loads((data / "tokenizers/byte_fallback/tokenizer.json").read_text()))
    for name in ("byte_level", "byte_fallback"):
        write_vocabulary(data / "vocab", name, data / "tokenizers")


if __name__ == "__main__":
    main()
