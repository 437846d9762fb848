#!/usr/bin/env python3
"""Trains small tokenizers and records what Hugging Face's tokenizers library makes of the test strings.

make_tokenizers.py OUT_DIR [NAME...] writes OUT_DIR/NAME/{tokenizer.json, cases.jsonl, stream.jsonl, pairs.jsonl}; the last one only if the post-processor has a
template for pairs. Without names: all tokenizers.
The training text is this repository's documents and sources, so another run gives another vocabulary: regenerate all files of a tokenizer together.
"""
import codecs, json, os, random, subprocess, sys
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

import strings

ROOT = Path(__file__).resolve().parents[3]
BYTES = [f"<0x{b:02X}>" for b in range(256)]


def corpus():
    names = subprocess.run(["git", "ls-files", "*.md", "src/*.cc", "scripts/*.py"], capture_output=True, text=True, check=True, cwd=ROOT).stdout.split()
    lines = [line for name in names for line in (ROOT / name).read_text().splitlines() if line.strip()]
    return lines + strings.common() * 3


def train(tokenizer, trainer):
    tokenizer.train_from_iterator(corpus(), trainer)
    return json.loads(tokenizer.to_str())


def added(*tokens):
    """Special tokens, then tokens that use each option of the format."""
    return [*[AddedToken(t, special=True, normalized=False) for t in tokens], AddedToken("<call>", lstrip=True, rstrip=True, normalized=False),
            AddedToken("quire", single_word=True, normalized=True)]


def byte_level():
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    j = train(t, trainers.BpeTrainer(vocab_size=700, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    return j, added("<|end|>", "<|user|>")


def byte_level_split():
    """The kind of Llama 3 and Qwen: NFC, a pattern of its own, whole words looked up before merging, a BOS token."""
    t = Tokenizer(models.BPE(ignore_merges=True))
    t.normalizer = normalizers.NFC()
    pattern = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    j = train(t, trainers.BpeTrainer(vocab_size=700, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    return j, added("<|begin|>", "<|end|>")


def sentencepiece_vocabulary():
    """Tokens of a SentencePiece-like BPE in order of preference, and every merge that yields one of them in that order."""
    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    t.pre_tokenizer = pre_tokenizers.Split(Regex("▁"), "merged_with_next")  # merges stay within words, as SentencePiece's do
    learned = train(t, trainers.BpeTrainer(vocab_size=440, limit_alphabet=120, show_progress=False))["model"]["vocab"]
    words = sorted(learned, key=learned.get)
    pieces = [w for w in words if len(w) > 1] + [w for w in words if len(w) == 1]
    vocab = {token: i for i, token in enumerate(["<unk>", "<s>", "</s>", *BYTES, *pieces])}
    merges = [[p[:i], p[i:]] for p in pieces for i in range(1, len(p)) if p[:i] in vocab and p[i:] in vocab]
    return vocab, merges


def byte_fallback(prepend_by_metaspace):
    vocab, merges = sentencepiece_vocabulary()
    t = Tokenizer(models.BPE(vocab=vocab, merges=[tuple(m) for m in merges], unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    if prepend_by_metaspace:  # as in Mistral's files
        t.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first", split=False)
    else:  # as in Llama 2's
        t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    return json.loads(t.to_str()), added("<unk>", "<s>", "</s>")


def unigram():
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    t.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    t.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always")
    j = train(t, trainers.UnigramTrainer(vocab_size=700, special_tokens=["<unk>", "</s>"], unk_token="<unk>", show_progress=False))
    return j, added("<unk>", "</s>")


def wordpiece(vocab_size, normalizer, cleanup, most_characters, *extra):
    """The kind of BERT."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    t.normalizer = normalizer
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.decoder = decoders.WordPiece(prefix="##", cleanup=cleanup)
    j = train(t, trainers.WordPieceTrainer(vocab_size=vocab_size, limit_alphabet=300, special_tokens=special, continuing_subword_prefix="##", show_progress=False))
    j["model"]["max_input_chars_per_word"] = most_characters
    mask = AddedToken("[MASK]", special=True, normalized=False, lstrip=True)  # as in ModernBERT
    return j, added(*special) + [mask, *(AddedToken(t, normalized=True) for t in extra)]


def wordpiece_uncased():
    return wordpiece(900, normalizers.BertNormalizer(), True, 100, "Käse")


def wordpiece_cased():
    """Accents stay, Chinese characters form words; longer words than 20 characters are unknown."""
    return wordpiece(1100, normalizers.BertNormalizer(handle_chinese_chars=False, lowercase=False), False, 20)


KINDS = {"byte_level": byte_level, "byte_level_split": byte_level_split, "byte_fallback": lambda: byte_fallback(False),
         "metaspace": lambda: byte_fallback(True), "unigram": unigram,
         "wordpiece_uncased": wordpiece_uncased, "wordpiece_cased": wordpiece_cased}


def build(name):
    j, tokens = KINDS[name]()
    j["added_tokens"] = []
    t = Tokenizer.from_str(json.dumps(j))
    t.add_tokens([a for a in tokens if not a.special])
    t.add_special_tokens([a for a in tokens if a.special])
    if name.startswith("wordpiece"):
        cls, sep = (("[CLS]", t.token_to_id("[CLS]")), ("[SEP]", t.token_to_id("[SEP]")))
        t.post_processor = processors.BertProcessing(sep, cls) if name == "wordpiece_cased" else processors.TemplateProcessing(
            single="[CLS]:0 $A:0 [SEP]:0", pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1", special_tokens=[cls, sep])
        return t
    first = {"byte_level_split": "<|begin|>", "byte_fallback": "<s>", "metaspace": "<s>"}.get(name)
    last = {"unigram": "</s>"}.get(name)
    if first or last:
        template = f"{first or ''} $A {last or ''}".strip()
        t.post_processor = processors.TemplateProcessing(single=template, pair=template + " $B", special_tokens=[(x, t.token_to_id(x)) for x in (first, last) if x])
    return t


# ---- what is expected --------------------------------------------------------------------------------------------------

def byte_of_character():
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [b for b in range(256) if b not in shown]
    return {chr(b): b for b in shown} | {chr(256 + i): b for i, b in enumerate(hidden)}


CHARACTERS = byte_of_character()
CLEANUP = [(" .", "."), (" ?", "?"), (" !", "!"), (" ,", ","), (" ' ", "'"), (" n't", "n't"), (" 'm", "'m"), (" do not", " don't"), (" 's", "'s"), (" 've", "'ve"), (" 're", "'re")]


def token_bytes(j):
    """(index, token) -> bytes; and whether the whole text loses its first space"""
    d = j["decoder"]
    if d["type"] == "ByteLevel":
        return (lambda i, t: bytes(CHARACTERS[c] for c in t) if all(c in CHARACTERS for c in t) else t.encode()), False
    if d["type"] == "WordPiece":
        def word_piece(i, t):
            t = t if i == 0 else t[2:] if t.startswith("##") else " " + t
            for a, b in CLEANUP if d["cleanup"] else []:
                t = t.replace(a, b)
            return t.encode()
        return word_piece, False
    if d["type"] == "Metaspace":
        return (lambda i, t: (t.replace("▁", "", 1) if i == 0 and t.startswith("▁") else t).replace("▁", " ").encode()), False
    return (lambda i, t: bytes([int(t[3:5], 16)]) if t in BYTES else t.replace("▁", " ").encode()), True


def stream(tokenizer, j, ids):
    """The text that each id completes, and what is left at the end: bytes of an unfinished character are held back."""
    of, strip = token_bytes(j)
    decoder, pieces, started = codecs.getincrementaldecoder("utf-8")("replace"), [], False
    for i, id in enumerate(ids):
        b = of(i, tokenizer.id_to_token(id))
        if strip and not started and b:
            b, started = b.removeprefix(b" "), True
        pieces.append(decoder.decode(b))
    return pieces, decoder.decode(b"", True)


def write_lines(path, rows):
    with open(path, "w", newline="\n") as out:
        for row in rows:
            out.write(json.dumps(row) + "\n")


PAIRS = [("What is a panda?", "The giant panda is a bear of China."), ("", ""), ("a", ""), ("", "b"), ("[SEP]", "x [CLS] </s> y"), (" leading", "trailing "), ("é", "你好，世界！"),
         ("a b c d e f g h", "one two three four five six seven"), ("one two three four five six seven", "a b c d"), ("a\0b", "\U0010ffff"), ("Hello world", "hello hello world " * 20)]


def has_pairs(post_processor):
    return any(p["type"] != "ByteLevel" for p in (post_processor or {}).get("processors", [post_processor] if post_processor else []))


def pair_rows(tokenizer):
    """Each pair whole, and cut to a few lengths; `second`: where type id 1 begins."""
    for a, b in PAIRS:
        for most in (0, 4, 5, 8, 9, 16):
            tokenizer.enable_truncation(most, strategy="longest_first") if most else tokenizer.no_truncation()
            encoding = tokenizer.encode(a, b)
            second = (encoding.type_ids + [1]).index(1)
            yield {"a": a, "b": b, "most": most, "ids": encoding.ids, "second": second}
    tokenizer.no_truncation()


def main():
    for name in sys.argv[2:] or KINDS:
        folder = Path(sys.argv[1]) / name
        os.makedirs(folder, exist_ok=True)
        tokenizer = build(name)
        j = json.loads(tokenizer.to_str())
        (folder / "tokenizer.json").write_text(json.dumps(j, ensure_ascii=False, separators=(",", ":")) + "\n")
        names = [a["content"] for a in j["added_tokens"]]
        texts = strings.uniq(strings.common() + strings.special(strings.pick(names)) + strings.fuzz(40) + (strings.words() if name.startswith("wordpiece") else []))

        def encode(text, special=False):
            return tokenizer.encode(text, add_special_tokens=special).ids

        write_lines(folder / "cases.jsonl", ({"text": t, "ids": encode(t), "ids_special": encode(t, True), "decoded": tokenizer.decode(encode(t), skip_special_tokens=False)} for t in texts))
        random_ids = random.Random(99)
        rows = [encode(t) for t in ["Hello world, this is streaming.", " leading space", "", "\n\n  x\n", "👨‍👩‍👧‍👦 family", "你好，世界！𠮷野家", "नमस्ते क्षत्रिय", "e\u0301te\u0301", "a\ufffdb", "\U0010ffff", "a\0b"]]
        rows += [encode("Hi " + names[0] + " there", True), encode("ok 😀")[:-1], encode("😀 after")[1:]]
        rows += [[random_ids.randrange(tokenizer.get_vocab_size()) for _ in range(24)] for _ in range(8)]
        rows = [(ids, *stream(tokenizer, j, ids)) for ids in rows]
        write_lines(folder / "stream.jsonl", ({"ids": ids, "pieces": pieces, "flush": flush, "decoded": "".join(pieces) + flush} for ids, pieces, flush in rows))
        if has_pairs(j["post_processor"]):
            write_lines(folder / "pairs.jsonl", pair_rows(tokenizer))
        differ = sum(tokenizer.decode(ids, skip_special_tokens=False) != "".join(p) + f for ids, p, f in rows)
        print(f"{name}: {tokenizer.get_vocab_size()} tokens, {len(texts)} texts, {differ} streams differ from the library's decode()")


if __name__ == "__main__":
    main()
