"""quire verify: a model against a reference file, and the kernel sets of this machine against each other."""

import json
import math
import struct

import pytest

from conftest import GOLDEN, quire, quire_json

LLAMA = GOLDEN / "models/llama"


@pytest.fixture(scope="module")
def model(tiny):
    return tiny("q6_k")


def test_kernel_sets_agree_on_linears_and_on_the_model(model):
    if "is the only kernel set" in (done := quire("verify", "-m", model, "--json")).stderr:
        pytest.skip("this machine runs the reference kernels only")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["passed"] and report["beside"] == "reference" and report["activations"] != "f32"
    assert report["linears"] and [l["kernels"] for l in report["linears"]] == [m["kernels"] for m in report["models"]]
    for linears in report["linears"]:
        assert linears["equal"] and linears["matrices"] == 2 * 7 + 1 and linears["outputs_compared"] > 0
    for whole in report["models"]:
        assert whole["mean_kl"] <= 1e-4 and whole["greedy_equal"] == whole["greedy_compared"] > 0


@pytest.mark.parametrize("dtype", ["int8", "int4", "fp8"])
def test_kernel_sets_agree_with_every_cache_of_codes(model, dtype):
    if "is the only kernel set" in (done := quire("verify", "-m", model, "--json", "--kv-cache-dtype", dtype)).stderr:
        pytest.skip("this machine runs the reference kernels only")
    report = json.loads(done.stdout)
    assert done.returncode == 0 and report["kv_cache_dtype"] == dtype
    assert all(whole["mean_kl"] == 0 and whole["max_abs_logit_difference"] == 0 for whole in report["models"])


@pytest.mark.parametrize("arguments", [["--kernel-sets", "reference"], ["--kernel-sets", "reference,abacus"], ["--tolerance", "1"]])
def test_comparisons_with_nothing_are_refused(model, arguments):
    done = quire("verify", "-m", model, *arguments)
    assert done.returncode in (1, 2) and done.stderr and not done.stdout


def read_safetensors(path):
    """{name: (type, shape, bytes)}"""
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    body = data[8 + size:]
    return {name: (t["dtype"], t["shape"], body[slice(*t["data_offsets"])]) for name, t in json.loads(data[8:8 + size]).items() if name != "__metadata__"}


def write_safetensors(path, tensors):
    header, body = {}, b""
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)
    return path


def int64(*values):
    return "I64", [len(values)], struct.pack(f"<{len(values)}q", *values)


def float32(*shape, value=0.0):
    return "F32", list(shape), struct.pack("<f", value) * math.prod(shape)


def test_a_model_that_differs_from_its_reference_fails(model, tmp_path):
    vocab = quire_json("inspect", model)["sizes"]["vocab"]
    flat = write_safetensors(tmp_path / "flat.safetensors", {"prompt_0": int64(1, 2, 3), "logits_0": float32(3, vocab), "spare": float32(1)})
    done = quire("verify", "-m", model, flat, "--json")
    report = json.loads(done.stdout)
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1 and not report["passed"]
    prompt, = report["prompts"]
    assert (prompt["name"], prompt["prompt_tokens"], prompt["passed"]) == ("prompt_0", 3, False)
    assert prompt["max_abs_logit_difference"] > prompt["tolerance"] == pytest.approx(2e-4) and prompt["mean_kl"] > 0
    assert (report["activations"], report["kv_cache_dtype"], report["unknown_tensors"]) == ("f32", "f32", ["spare"])
    lines = quire("verify", "-m", model, flat).stdout.splitlines()
    assert lines[1].startswith("prompt_0 ") and lines[1].endswith("DIFFERS") and lines[3] == "ignored tensor: spare"
    assert all(len(line) <= 80 for line in lines)
    assert quire("verify", "-m", model, flat, "--tolerance", 1e6).returncode == 0


def test_files_that_are_not_a_reference_of_the_model_are_refused(model, tmp_path):
    vocab = quire_json("inspect", model)["sizes"]["vocab"]
    for tensors, why in [({"logits_0": float32(1, vocab)}, "is not a reference file"),
                         ({"prompt_0": int64(1), "logits_0": float32(1, vocab - 1)}, "do not fit a vocabulary"),
                         ({"prompt_0": int64(1)}, "do not fit a vocabulary"),
                         ({"prompt_0": int64(1), "logits_0": ("F16", [1, vocab], bytes(2 * vocab))}, "has type F16, expected F32"),
                         ({"prompt_0": int64(vocab), "logits_0": float32(1, vocab)}, f"token {vocab} is outside the vocabulary"),
                         ({"prompt_0": int64(-1), "logits_0": float32(1, vocab)}, "token -1 is outside the vocabulary"),
                         ({"prompt_0": int64(1 << 32), "logits_0": float32(1, vocab)}, "is not a token id"),
                         ({"prompt_0": int64(1), "logits_0": float32(1, vocab), "greedy_0": int64(1, 2), "margin_0": float32(1)}, "1 margins for 2")]:
        done = quire("verify", "-m", model, write_safetensors(tmp_path / "wrong.safetensors", tensors))
        assert done.returncode == 1 and not done.stdout and len(done.stderr.splitlines()) == 1 and why in done.stderr, done.stderr


@pytest.mark.parametrize("name", ["llama", "llama_yarn", "mistral", "qwen2"])
def test_models_agree_with_transformers(name):
    folder = GOLDEN / "models" / name
    report = quire_json("verify", "-m", folder, folder / "expected.safetensors")
    assert report["passed"] and not report["unknown_tensors"] and [p["prompt_tokens"] for p in report["prompts"]] == [1, 17, 96]
    allowed = json.loads((folder / "expected.json").read_text())["suggested_tolerance_max_abs_fp32"]
    for prompt in report["prompts"]:
        assert prompt["max_abs_logit_difference"] <= prompt["tolerance"] == pytest.approx(allowed)
        assert prompt["greedy_equal"] == prompt["greedy_compared"] == prompt["greedy_steps"] == 48


def test_a_gguf_agrees_with_torch():
    model = GOLDEN / "formats/gguf-models/every-type.gguf"
    report = quire_json("verify", "-m", model, model.with_suffix(".ref.safetensors"))
    prompt, = report["prompts"]
    assert report["passed"] and prompt["greedy_equal"] == prompt["greedy_compared"] == 32


@pytest.mark.parametrize("tensor, at", [("logits_1", 5), ("greedy_2", 40)])
def test_one_wrong_number_of_a_reference_is_found(tmp_path, tensor, at):
    tensors = read_safetensors(LLAMA / "expected.safetensors")
    dtype, shape, data = tensors[tensor]
    data = bytearray(data)
    if dtype == "F32":
        struct.pack_into("<f", data, 4 * at, struct.unpack_from("<f", data, 4 * at)[0] + 0.01)
    else:
        struct.pack_into("<q", data, 8 * at, struct.unpack_from("<q", data, 8 * at)[0] ^ 1)
    tensors[tensor] = dtype, shape, bytes(data)
    done = quire("verify", "-m", LLAMA, write_safetensors(tmp_path / "wrong.safetensors", tensors), "--json")
    assert done.returncode == 1
    assert [p["passed"] for p in json.loads(done.stdout)["prompts"]] == [k != int(tensor[-1]) for k in range(3)]
