#!/usr/bin/env python3
"""Writes small GGUF files and what they must give: a random model with a tensor of every weight type, and vocabularies.

make_gguf.py DATA_DIR reads DATA_DIR/tokenizers and writes
  formats/gguf-models/every-type.gguf, every-type.ref.safetensors   logits and greedy tokens, computed here in float64 from the weights as gguf-py reads them
  vocab/{byte_level,byte_fallback}.{gguf,jsonl}                     ids of the tokenizers library, with which llama.cpp agrees on these texts
  vocab/wordpiece_{uncased,cased}.{gguf,jsonl}                      ids of word_pieces() below, which follows llama.cpp's source (llm_tokenizer_wpm_session)
"""
import json
import re
import sys
import unicodedata
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType as T
from gguf import quants
from safetensors.numpy import save_file
from tokenizers import Tokenizer

import strings

HIDDEN, FFN, LAYERS, HEADS, KV_HEADS, CONTEXT, EPSILON, THETA = 256, 64, 4, 16, 2, 256, 1e-5, 10000.0
SEED = 21  # no step of the greedy continuation is nearly a tie
Q1_0, Q2_0 = 41, 42  # gguf-py does not know them
gguf.GGML_QUANT_SIZES |= {Q1_0: (128, 18), Q2_0: (64, 18)}
# Rows of down projections have a quarter of a K block, so they get types of small blocks. Floats are in the smallest matrices.
TYPES = {"token_embd": T.Q2_K, "output": T.IQ3_XXS,
         "blk.0.attn_q": T.Q4_0, "blk.0.attn_k": T.F32, "blk.0.attn_v": T.F16, "blk.0.attn_output": T.Q4_1, "blk.0.ffn_gate": T.Q5_0, "blk.0.ffn_up": T.Q5_1, "blk.0.ffn_down": T.MXFP4,
         "blk.1.attn_q": T.Q5_K, "blk.1.attn_k": T.BF16, "blk.1.attn_v": T.Q8_0, "blk.1.attn_output": T.Q3_K, "blk.1.ffn_gate": T.Q4_K, "blk.1.ffn_up": T.Q6_K, "blk.1.ffn_down": T.NVFP4,
         "blk.2.attn_q": T.IQ2_XXS, "blk.2.attn_k": T.IQ4_XS, "blk.2.attn_v": T.TQ1_0, "blk.2.attn_output": T.IQ2_S, "blk.2.ffn_gate": T.Q4_K, "blk.2.ffn_up": T.IQ3_S, "blk.2.ffn_down": T.IQ4_NL,
         "blk.3.attn_q": T.IQ1_M, "blk.3.attn_k": T.IQ2_XS, "blk.3.attn_v": T.TQ2_0, "blk.3.attn_output": T.IQ1_S, "blk.3.ffn_gate": Q1_0, "blk.3.ffn_up": T.Q6_K, "blk.3.ffn_down": Q2_0}
NAMES = {Q1_0: "Q1_0", Q2_0: "Q2_0"}


def half(x):
    return np.frombuffer(np.array(x, np.float16).tobytes(), np.uint8)


def place_scale(blocks, type, d):
    """Gives all blocks this scale, and the minimum that makes the mean of random codes 0."""
    minima = {T.Q2_K: (80, 1.5), T.Q4_K: (0, 7.5), T.Q5_K: (0, 15.5)}  # value = d * scale * code - dmin * minimum, of equal means
    if type in minima:
        at, middle = minima[type]
        blocks[:, at:at + 4] = np.concatenate([half(d), half(d * middle)])
    elif type == T.IQ1_M:  # the top nibbles of four words
        nibbles = [int(np.float16(d).view(np.uint16)) >> 4 * i & 15 for i in range(4)]
        blocks[:, 49:56:2] = blocks[:, 49:56:2] & 15 | np.array(nibbles, np.uint8) << 4
    else:
        at = blocks.shape[1] - 2 if type in (T.Q3_K, T.Q6_K) else 0
        blocks[:, at:at + 2] = half(d)


def random_blocks(random, type, rows, columns, deviation):
    """Random bits with scales that give the weights the deviation asked for: gguf-py can read these types, but not quantize to them."""
    elements, size = gguf.GGML_QUANT_SIZES[type]
    blocks = random.integers(0, 256, (rows * columns // elements, size), dtype=np.uint8)
    if type == T.NVFP4:
        blocks[:, :4] = random.integers(0x08, 0x10, (len(blocks), 4))  # 2^-6 to 2^-5, which comes near
        return blocks.reshape(rows, -1)
    if type == Q2_0:  # -1, 0, 1, 2: few of the last, for a mean near 0
        codes = random.choice(4, (len(blocks), 16, 4), p=[0.35, 0.35, 0.2, 0.1])
        blocks[:, 2:] = (codes << np.array([0, 2, 4, 6])).sum(-1)
    place_scale(blocks, type, 2.0**-8)
    place_scale(blocks, type, 2.0**-8 * deviation / dequantized(blocks, type).std())
    return blocks.reshape(rows, -1)


def dequantized(data, type):
    if type not in NAMES:
        return quants.dequantize(data, type)
    blocks = data.reshape(-1, 18)
    scale = blocks[:, :2].copy().view(np.float16).astype(np.float32)
    if type == Q1_0:  # a bit: +d or -d
        codes = 2.0 * np.unpackbits(blocks[:, 2:], axis=1, bitorder="little") - 1
    else:  # two bits, the first in the low ones: -d, 0, d, 2d
        codes = (blocks[:, 2:, None] >> np.array([0, 2, 4, 6]) & 3).reshape(len(blocks), -1) - 1.0
    return (scale * codes.astype(np.float32)).reshape(len(data), -1)


def quantized(random, type, rows, columns, deviation):
    if type in (T.F32, T.F16, T.BF16, T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.Q8_0, T.TQ1_0, T.TQ2_0, T.MXFP4):
        return quants.quantize((random.standard_normal((rows, columns)) * deviation).astype(np.float32), type)
    return random_blocks(random, type, rows, columns, deviation)


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
    random = np.random.default_rng(SEED)
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
    head, weights, types = HIDDEN // HEADS, {}, {}
    for name, type in TYPES.items():
        rows = vocab if "." not in name else head * KV_HEADS if re.search("attn_[kv]", name) else FFN if re.search("gate|up", name) else HIDDEN
        columns = FFN if "ffn_down" in name else HIDDEN
        gain = 11.0 if name == "token_embd" else 3.0 if name == "output" else 1.8 if re.search("attn_[qk]", name) else 1.1
        data = quantized(random, type, rows, columns, gain / np.sqrt(columns))
        writer.add_tensor(name + ".weight", data, raw_dtype=type)
        weights[name] = np.array(dequantized(data, type), np.float64).reshape(rows, columns)
        types[NAMES.get(type) or type.name] = types.get(NAMES.get(type) or type.name, 0) + 1
    for name in ["output_norm", *(f"blk.{i}.{kind}_norm" for i in range(LAYERS) for kind in ("attn", "ffn"))]:
        weights[name] = (1 + 0.2 * random.standard_normal(HIDDEN)).astype(np.float32)
        writer.add_tensor(name + ".weight", weights[name])
        types["F32"] += 1
    close(writer)

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


def is_chinese(c):
    ranges = [(0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F), (0x2B740, 0x2B81F), (0x2B920, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F)]
    return any(a <= ord(c) <= b for a, b in ranges)


def words_of(text, lowercase, strip_accents):
    """llm_tokenizer_wpm_session::preprocess: of a decomposition, only the first character stays (that loses vowels of Korean)."""
    words = [""]
    for c in text:
        c = unicodedata.normalize("NFD", c)[0] if strip_accents else c
        category = unicodedata.category(c)
        if c.isspace() and c not in "\x1c\x1d\x1e\x1f":
            words.append("")
        elif c in "\0\ufffd" or category in ("Cc", "Cf", "Co", "Cs") or (strip_accents and category[0] == "M"):
            continue
        else:
            lower = c.lower()[0] if lowercase else c
            alone = category[0] == "P" or (ord(c) < 0x7F and category[0] == "S") or is_chinese(c)
            words += [lower, ""] if alone else []
            words[-1] += "" if alone else lower
    return [w for w in words if w]


def word_pieces(ids, unknown, text, lowercase, strip_accents):
    """llm_tokenizer_wpm_session::tokenize. ids: of the tokens' bytes."""
    out, longest = [], max(map(len, ids))
    for word in words_of(text, lowercase, strip_accents):
        word, at, found = ("▁" + word).encode(), 0, []
        while at < len(word):
            end = next((e for e in range(min(len(word), at + longest), at, -1) if word[at:e] in ids), None)
            if end is None:
                found = []
                break
            found.append(ids[word[at:end]])
            at = end
        out += found or [unknown]
    return out


def write_word_pieces(folder, name, data):
    """As convert_hf_to_gguf.py writes them: ▁ before the tokens that begin a word, nothing before the others."""
    tokenizer = json.loads((data / name / "tokenizer.json").read_text())
    special = {a["content"]: a["special"] for a in tokenizer["added_tokens"]}
    vocab = tokenizer["model"]["vocab"] | {a["content"]: a["id"] for a in tokenizer["added_tokens"]}
    kinds = [3 if special.get(t) else 4 if t in special else 1 for t, _ in sorted(vocab.items(), key=lambda item: item[1])]
    texts = [t if kind == 3 else t[2:] if t.startswith("##") else "▁" + t for (t, _), kind in zip(sorted(vocab.items(), key=lambda item: item[1]), kinds)]
    lowercase = tokenizer["normalizer"]["lowercase"]
    writer = gguf.GGUFWriter(folder / f"{name}.gguf", "bert")
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(texts)
    writer.add_token_types(kinds)
    cls, sep = vocab["[CLS]"], vocab["[SEP]"]
    for key, id in (("bos", cls), ("eos", sep), ("unknown", vocab["[UNK]"]), ("seperator", sep), ("padding", vocab["[PAD]"]), ("cls", cls), ("mask", vocab["[MASK]"])):
        writer.add_uint32(f"tokenizer.ggml.{key}_token_id", id)
    for key, value in (("add_bos_token", True), ("add_eos_token", True), ("add_sep_token", False), ("normalizer.lowercase", lowercase)):
        writer.add_bool(f"tokenizer.ggml.{key}", value)
    close(writer)
    ids = {t.encode(): i for i, t in enumerate(texts)}
    with open(folder / f"{name}.jsonl", "w", newline="\n") as out:
        for text in strings.uniq(strings.common() + strings.words() + strings.fuzz(60, 5)):
            # Characters that are assigned later have other classes then. Special tokens and added words are not for word_pieces().
            if any(unicodedata.category(c) == "Cn" for c in text) or any(t in text for t, kind in zip(texts, kinds) if kind > 1):
                continue
            found = word_pieces(ids, vocab["[UNK]"], text, lowercase, lowercase)
            framed = [cls, *found, sep]
            detok = "".join(texts[i].replace("▁", " ") if kinds[i] == 1 else texts[i] for i in found)
            out.write(json.dumps({"text": text, "ids": found, "ids_add": framed, "ids_parse": found, "ids_add_parse": framed, "detok": detok}) + "\n")


def main():
    data = Path(sys.argv[1])
    for folder in ("formats/gguf-models", "vocab"):
        (data / folder).mkdir(parents=True, exist_ok=True)
    write_model(data / "formats/gguf-models", json.loads((data / "tokenizers/byte_fallback/tokenizer.json").read_text()))
    for name in ("byte_level", "byte_fallback"):
        write_vocabulary(data / "vocab", name, data / "tokenizers")
    for name in ("wordpiece_uncased", "wordpiece_cased"):
        write_word_pieces(data / "vocab", name, data / "tokenizers")


if __name__ == "__main__":
    main()
