"""quire inspect: descriptions of models, and of broken and hostile files."""

import json
import os
import shutil
import struct

from conftest import GOLDEN, MODEL, needs_model, quire, quire_json


def inspect(*arguments):
    return quire("inspect", *arguments)


def report(*arguments):
    return quire_json("inspect", *arguments)


def gguf_string(text):
    data = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<Q", len(data)) + data


def gguf(*pairs):
    """A GGUF without tensors; all values are strings."""
    out = b"GGUF" + struct.pack("<IQQ", 3, 0, len(pairs))
    for key, value in pairs:
        out += gguf_string(key) + struct.pack("<I", 8) + gguf_string(value)
    return out


@needs_model
def test_a_gguf_model():
    r = report(MODEL)
    assert r["sizes"] == {"layers": 30, "hidden": 576, "heads": 9, "kv_heads": 3, "head_dim": 64, "ffn": 1536, "vocab": 49152,
                          "context": 8192}
    assert (r["architecture"], r["parameters"], r["file_bytes"]) == ("llama", 134515008, 98362432)
    assert r["tensor_types"][0]["type"] == "Q4_1"
    assert sum(t["tensors"] for t in r["tensor_types"]) == len(r["tensors"]) == 272
    assert r["rope"]["theta"] == 100000 and r["rope"]["dim"] == 64
    assert r["tokenizer"]["special_tokens"]["eos"] == {"id": 2, "text": "<|im_end|>"}
    assert r["chat_template"]["bytes"] > 100
    assert r["memory"]["kv_bytes_per_token"] == 30 * 3 * 64 * 2 * 2
    by_dtype = r["memory"]["kv_bytes_per_token_by_dtype"]
    assert [by_dtype[t] for t in ("int8", "fp8", "int4")] == [30 * 3 * 2 * (n + scale) for n, scale in ((64, 4), (64, 2), (32, 2))]
    assert r["runs"] == {"ok": True, "why_not": None}
    assert r["metadata"]["tokenizer.ggml.tokens"] == {"array_of": "STRING", "count": 49152}
    assert len(report(MODEL, "--metadata")["metadata"]["tokenizer.ggml.tokens"]) == 49152


@needs_model
def test_readable_output():
    result = inspect(MODEL, "--tensors", "--metadata")
    for part in ["134.5 M", "98.4 MB", "\nsupported:        yes\n", "\nBOS/EOS added:    none\n", "blk.0.attn_q.weight", "[576,576]", "llama.rope.freq_base = 100000.0"]:
        assert part in result.stdout


def test_a_hugging_face_directory():
    r = report(GOLDEN / "models/llama")
    assert r["sizes"]["layers"] == 3 and r["sizes"]["kv_heads"] == 2 and r["runs"]["ok"]
    assert r["rope"]["pairs"] == "halves"
    weights = report(GOLDEN / "models/llama/model.safetensors")
    assert weights["parameters"] == r["parameters"] and not weights["runs"]["ok"]


def test_a_quantized_directory(tmp_path):
    model = GOLDEN / "formats/hf-models/llama-gptq-orders"
    r = report(model)
    assert r["runs"]["ok"] and r["quantization"] == "gptq" and {t["type"] for t in r["tensor_types"]} == {"I32", "F16", "BF16"}
    # 256 tokens twice; 2 layers of q, o, k and v for half the heads, gate, up and down; norms. 4 bits, with a float32 scale and a zero point for 32 weights.
    linears = 2 * (3 * 64 * 64 + 3 * 64 * 128)
    assert r["parameters"] == 2 * 256 * 64 + linears + 5 * 64
    packed = 2 * 256 * 64 * 2 + linears * 21 // 32 + 5 * 64 * 4
    assert packed <= r["memory"]["weight_bytes"] <= 1.02 * packed  # panels are whole cache lines
    assert "\nquantization:     gptq\n" in inspect(model).stdout

    for file in model.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    config = json.loads((tmp_path / "config.json").read_text())
    config["quantization_config"]["bits"] = 5
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert "quantization_config.bits" in report(tmp_path)["runs"]["why_not"]
    loaded = quire("run", "-m", tmp_path, "-p", "hello")
    assert loaded.returncode == 1 and len(loaded.stderr.splitlines()) == 1
    assert "config.json" in loaded.stderr and "quantization_config.bits" in loaded.stderr


def test_every_model_of_the_references_is_described():
    models = [d for d in sorted((GOLDEN / "models").iterdir()) if (d / "config.json").exists()]
    models += sorted((GOLDEN / "formats/gguf-models").glob("*.gguf")) + sorted((GOLDEN / "formats/hf-models").iterdir())
    assert models
    for model in models:
        r = report(model)
        assert r["parameters"] > 0 and r["sizes"]["layers"] > 0
        assert r["runs"]["ok"] == (r["runs"]["why_not"] is None)


@needs_model
def test_a_truncated_file_is_one_line_and_exit_code_1(tmp_path):
    data = MODEL.read_bytes()
    for size in [0, 3, 10, 100, 5000, 2_000_000, len(data) // 2, len(data) - 1]:
        (tmp_path / "cut.gguf").write_bytes(data[:size])
        result = inspect(tmp_path / "cut.gguf")
        assert result.returncode == 1 and result.stdout == ""
        assert len(result.stderr.splitlines()) == 1 and "cut.gguf" in result.stderr


def test_nonsense_is_one_line_and_exit_code_1(tmp_path):
    (tmp_path / "a.gguf").write_bytes(os.urandom(1000))
    (tmp_path / "a.safetensors").write_bytes(b"\xff" * 100)
    (tmp_path / "empty").mkdir()
    for name in ["a.gguf", "a.safetensors", "empty", "absent.gguf"]:
        result = inspect(tmp_path / name)
        assert result.returncode == 1 and len(result.stderr.splitlines()) == 1, name
    assert inspect().returncode == 2


def test_a_model_without_a_vocabulary_is_supported_for_token_ids(tiny, tmp_path):
    path = tmp_path / "bare.gguf"
    path.write_bytes(tiny("q4_0").read_bytes().replace(b"tokenizer.ggml.tokens", b"tokenizer.ggml.absent"))
    assert report(path)["runs"] == {"ok": True, "why_not": None}
    assert "yes, but only for `quire serve` with token ids" in inspect(path).stdout


def with_floats(model, pairs):
    """The GGUF with further float32 keys."""
    data = model.read_bytes()
    new = b"".join(gguf_string(key) + struct.pack("<If", 6, value) for key, value in pairs)
    new += gguf_string("test.padding") + struct.pack("<I", 8)
    new += gguf_string(" " * (-(len(new) + 8) % 32))  # tensors stay aligned
    keys = struct.unpack_from("<Q", data, 16)[0]
    return data[:16] + struct.pack("<Q", keys + len(pairs) + 1) + new + data[24:]


def test_unsupported_rope_settings_are_refused(tiny, tmp_path):
    path, scaling = tmp_path / "rope.gguf", "llama.rope.scaling."
    path.write_bytes(with_floats(tiny("q4_0"), [(scaling + "attn_factor", 1), (scaling + "yarn_beta_fast", 32)]))
    assert report(path)["runs"]["ok"]
    for name in ["attn_factor", "yarn_ext_factor", "yarn_attn_factor", "yarn_log_multiplier"]:
        path.write_bytes(with_floats(tiny("q4_0"), [(scaling + name, 0.5)]))
        assert name in report(path)["runs"]["why_not"]


def test_yarn_settings_are_read(tmp_path):
    for file in (GOLDEN / "models/llama_yarn").iterdir():
        (tmp_path / file.name).symlink_to(file)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").unlink()
    yarn = config.get("rope_parameters") or config["rope_scaling"]
    for change, problem in [({}, None), ({"mscale": 0.7, "mscale_all_dim": 1.0}, None), ({"truncate": False}, None), ({"beta_fast": -1}, "factors of rope scaling"), ({"rope_type": "spiral"}, "spiral")]:
        (tmp_path / "config.json").write_text(json.dumps(config | {"rope_parameters": yarn | change}))
        why_not = report(tmp_path)["runs"]["why_not"]
        assert why_not is None if problem is None else problem in why_not


def test_a_file_cannot_write_to_the_terminal(tmp_path):
    evil = "\x1b]0;owned\x07\r\n\u009b2J"
    path = tmp_path / "evil.gguf"
    path.write_bytes(gguf(("general.architecture", evil), ("general.name", evil), ("general.note" , evil)))
    for arguments in [[], ["--metadata"], ["--json"]]:
        result = inspect(path, *arguments)
        assert result.returncode == 0, result.stderr
        assert not any(c != "\n" and (ord(c) < 32 or 127 <= ord(c) < 160) for c in result.stdout + result.stderr)
    assert report(path)["name"] == evil
    assert not report(path)["runs"]["ok"]


def test_a_pipe_is_refused(tmp_path):
    os.mkfifo(tmp_path / "x.gguf")  # has no writer
    done = quire("inspect", tmp_path / "x.gguf", timeout=20)
    assert done.returncode == 1 and "not a regular file" in done.stderr


def test_a_directory_without_a_model_is_explained(tmp_path):
    done = inspect(tmp_path)
    assert done.returncode == 1 and f"{tmp_path} is not a model directory (no config.json); pass a .gguf file" in done.stderr


def test_inspect_refuses_what_loading_refuses(tiny, tmp_path):
    path = tmp_path / "renamed.gguf"
    path.write_bytes(tiny("q4_0").read_bytes().replace(b"blk.1.ffn_up.weight", b"blk.1.ffn_up.weighs"))
    why_not = report(path)["runs"]["why_not"]
    load = quire("bench", "-m", path, "-p", "4", "-n", "0")
    assert "blk.1.ffn_up.weight" in why_not and load.returncode == 1 and load.stderr == f"quire: {why_not}\n"


POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 98362432\n"


def test_git_lfs_pointers_are_named(tmp_path):
    (tmp_path / "m.gguf").write_text(POINTER)
    for command in ["inspect"], ["run", "-p", "x", "-m"], ["tokenize", "-p", "x", "-m"]:
        done = quire(*command, tmp_path / "m.gguf")
        assert done.returncode == 1 and "m.gguf is a git-lfs pointer" in done.stderr and "git lfs pull" in done.stderr, done
    for file in "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json":
        model = tmp_path / file.replace(".", "-")
        shutil.copytree(GOLDEN / "models/llama", model)
        for name in "tokenizer.json", "tokenizer_config.json":
            shutil.copy(GOLDEN / "converted" / name, model)
        (model / file).write_text(POINTER)
        done = inspect(model)
        assert f"{file} is a git-lfs pointer" in done.stdout + done.stderr and "git lfs pull" in done.stdout + done.stderr, done
        assert "git lfs pull" in quire("run", "-m", model, "-p", "x", "-n", "1").stderr


def test_a_vocabulary_without_its_pre_tokenizer_is_warned_of(tiny, tmp_path):
    model = tmp_path / "old.gguf"
    model.write_bytes(tiny("q4_1").read_bytes().replace(b"tokenizer.ggml.pre", b"tokenizer.ggml.prx"))
    warning = "tokenizer.ggml.pre is missing"
    assert f"\nwarning:          {model}: {warning}" in inspect(model).stdout
    assert warning in report(model)["tokenizer"]["warnings"][0]
    assert "warnings" not in report(tiny("q4_1"))["tokenizer"]
    for command in ["run", "-n", "1"], ["tokenize"]:
        done = quire(*command, "-m", model, "-p", "x")
        assert done.returncode == 0 and warning in done.stderr, done.stderr


def test_a_tied_output_that_differs_is_warned_of(tmp_path):
    model = tmp_path / "model"
    shutil.copytree(GOLDEN / "models/llama", model)
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": True}))
    assert "lm_head.weight differs from the embedding" in report(model)["warnings"][0]
    assert "\nwarning: " in inspect(model).stdout
    done = quire("run", "-m", model, "-p", "x", "-n", "1")
    assert "lm_head.weight differs" in done.stderr or "vocabulary" in done.stderr, done.stderr


def test_hostile_tokenizers_are_refused_in_time(tmp_path):
    model = tmp_path / "model"
    shutil.copytree(GOLDEN / "models/llama", model)
    tokenizer = json.loads((GOLDEN / "converted/tokenizer.json").read_text())
    split = {"type": "Split", "pattern": {"Regex": "(?:a?){5000}a{5000}"}, "behavior": "Isolated"}
    for changes in {"pre_tokenizer": split}, {"normalizer": {"type": "Replace", "pattern": {"Regex": "(?:a?){25}a{25}"}, "content": ""}}:
        (model / "tokenizer.json").write_text(json.dumps({**tokenizer, **changes}))
        for text in "a" * 5000, "a" * 30, ("a" * 24 + " ") * 500:
            done = quire("tokenize", "-m", model, "-p", text, timeout=30)
            assert done.returncode == 0 or "takes more than" in done.stderr or "fails on this text" in done.stderr, done.stderr
    added = [{"id": 400 + i, "content": str(i) + "x" * 20_000, "normalized": True} for i in range(2000)]
    (model / "tokenizer.json").write_text(json.dumps({**tokenizer, "added_tokens": added}))
    done = quire("inspect", model, timeout=30)
    assert "at most 1024 are allowed" in done.stdout
