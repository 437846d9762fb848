"""quire quantize --method: directories, flags and messages. tests/unit/quantize compares every weight with what the solvers said."""

import json
import re
import resource
import shutil
import signal
import struct

import pytest

from conftest import GOLDEN, expect_interrupt_leaves_nothing, quire, quire_json, skip_without_binary

HF = GOLDEN / "formats/hf-models"
# And the most KL that the random model may lose, which magnifies rounding: as GGUF files it loses 0.40 in Q4_0, 0.0019 in Q8_0.
METHODS = {"rtn-int4": 0.55, "rtn-int8": 0.003, "llm-int8": 0.003, "nf4": 0.6, "fp4": 1, "fp8": 0.05, "fp8-block": 0.06, "mxfp4": 0.75, "nvfp4": 0.55}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A float directory with a tokenizer."""
    folder = tmp_path_factory.mktemp("models") / "llama"
    shutil.copytree(GOLDEN / "models/llama", folder)
    for file in (GOLDEN / "converted").glob("tokenizer*.json"):
        shutil.copy(file, folder)
    return folder


def kl(model, base):
    return quire_json("compare", "-m", model, "-b", base, "-f", GOLDEN / "README.md", "-c", "64", "--chunks", "2", "--activations", "f32", "--kv-cache-dtype", "f32")["mean_kl"]["value"]


@pytest.mark.parametrize("method", METHODS)
def test_every_method_gives_a_directory_that_runs(model, tmp_path, method):
    out = tmp_path / "out"
    done = quire("quantize", model, out, "--method", method)
    assert done.returncode == 0, done.stderr
    assert re.search(rf"wrote .*out: {method}, 21 matrices quantized, [\d.]+ MB; relative error of weights 0\.\d+ on average; worst: model\.layers", done.stderr), done.stderr
    assert 0 < kl(out, model) < METHODS[method]
    done = quire("run", "-m", out, "-p", "Hello", "-n", "2")
    assert done.returncode == 0, done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
    assert (out / "tokenizer.json").read_bytes() == (model / "tokenizer.json").read_bytes()
    config = json.loads((out / "config.json").read_text())
    quantization = config.pop("quantization_config")
    assert config == json.loads((model / "config.json").read_text())
    assert "lm_head" in str(quantization)


@pytest.mark.parametrize("name", ["tiny128-gptq", "tiny128-awq", "tiny128-bnb-nf4", "hqq-4bit-g64"])
def test_quantized_directories_are_dequantized_first(tmp_path, name):
    done = quire("quantize", HF / name, tmp_path / "out", "--method", "rtn-int8")
    assert done.returncode == 0, done.stderr
    assert "quire: warning: the weights are quantized already; they are dequantized first, so what was lost stays lost" in done.stderr
    if (HF / name / "tokenizer.json").exists():
        assert kl(tmp_path / "out", HF / name) < 0.01


def test_gguf_files_become_directories(tmp_path):
    file = GOLDEN / "converted/llama_q8_0.gguf"
    done = quire("quantize", file, tmp_path / "out", "--method", "rtn-int8")
    assert done.returncode == 0, done.stderr
    assert kl(tmp_path / "out", file) < 0.01
    done = quire("run", "-m", tmp_path / "out", "-p", "Hello", "-n", "2")
    assert done.returncode == 0, done.stderr


def test_a_vocabulary_that_cannot_be_written_is_said(tiny, tmp_path):
    done = quire("quantize", tiny("f32"), tmp_path / "out", "--method", "nf4")
    assert done.returncode == 0, done.stderr
    assert re.search(r"warning: the vocabulary \(gpt2, default\) cannot be written as tokenizer.json yet, so the directory has no tokenizer; copy that of the model's own directory into it\n", done.stderr), done.stderr


def test_flags_reach_the_file(model, tmp_path):
    def config(*flags):
        done = quire("quantize", model, tmp_path / "out", "--force", *flags)
        assert done.returncode == 0, done.stderr
        return json.loads((tmp_path / "out/config.json").read_text())["quantization_config"]

    weights = config("--method", "rtn-int4", "--group-size", "16", "--asym", "--observer", "minmax")["config_groups"]["group_0"]["weights"]
    assert (weights["num_bits"], weights["group_size"], weights["symmetric"], weights["observer"]) == (4, 16, False, "minmax")
    weights = config("--method", "rtn-int8", "--group-size", "-1")["config_groups"]["group_0"]["weights"]
    assert (weights["num_bits"], weights["group_size"], weights["strategy"]) == (8, None, "channel")
    assert config("--method", "nf4", "--no-double-quant")["bnb_4bit_use_double_quant"] is False


def test_the_plan_is_printed_and_nothing_written(model, tmp_path):
    done = quire("quantize", model, "--method", "gptq", "--group-size", "32", "--dry-run")
    assert done.returncode == 0, done.stderr
    rows = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines()}
    assert rows["tensor"] == ["from", "to", "MB", "bits"]
    assert rows["model.layers.0.mlp.up_proj.weight"][:2] == ["BF16", "gptq"]
    assert rows["lm_head.weight"][:2] == ["BF16", "BF16"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("flags, message", [
    (["in", "out"], "--plan or --method is required"),
    (["in", "out", "--method", "gtpq"], "gtpq is not a method; use one of gptq, awq, smoothquant"),
    (["in", "out", "--method", "nf4", "--type", "Q4_0"], "cannot be combined with"),
    (["in", "out", "--method", "nf4", "--pure"], "cannot be combined with"),
    (["in", "out", "--method", "nf4", "--imatrix", "x"], "cannot be combined with"),
    (["in", "out", "--method", "nf4", "--bits", "4"], "--bits: does not apply to --method nf4"),
    (["in", "out", "--method", "fp8", "--group-size", "128"], "--group-size: does not apply to --method fp8"),
    (["in", "out", "--method", "mxfp4", "--asym"], "--asym: does not apply to --method mxfp4"),
    (["in", "out", "--method", "rtn-int4", "--act-order"], "--act-order: does not apply to --method rtn-int4"),
    (["in", "out", "--method", "rtn-int4", "--alpha", "0.5"], "--alpha: does not apply to --method rtn-int4"),
    (["in", "out", "--method", "rtn-int4", "--no-double-quant"], "--no-double-quant: does not apply"),
    (["in", "out", "--method", "gptq", "--bits", "5"], "--bits: 5 is not supported for --method gptq; use 2, 3, 4 or 8"),
    (["in", "out", "--method", "gptq", "--bits", "four"], "--bits"),
    (["in", "out", "--method", "gptq", "--group-size", "100"], "100 is not a number of inputs; use 16, a multiple of 32, or -1 for whole rows"),
    (["in", "out", "--method", "gptq", "--group-size", "0"], "0 is not a number of inputs"),
    (["in", "out", "--method", "gptq", "--sym", "--asym"], "cannot be combined with"),
    (["in", "out", "--method", "gptq", "--observer", "max"], "--observer"),
    (["in", "out", "--method", "gptq", "--damp-percent", "2"], "--damp-percent"),
    (["in", "out", "--method", "smoothquant", "--alpha", "-1"], "--alpha"),
    (["in", "out", "--type", "Q4_0", "--bits", "4"], "--bits"),
    (["in", "out", "--type", "Q4_0", "--act-order"], "--act-order"),
    (["in", "--method", "nf4"], "OUT"),
    (["in", "out", "--method", "gptq"], "gptq needs the inputs of a calibration text; give one with --calibrate"),
    (["in", "out", "--method", "awq"], "awq needs the inputs of a calibration text"),
    (["in", "out", "--method", "smoothquant"], "smoothquant needs the inputs of a calibration text"),
])
def test_bad_command_lines_exit_with_2(flags, message):
    done = quire("quantize", *flags)
    assert done.returncode == 2 and done.stderr.startswith("quire: ") and message in done.stderr, done.stderr
    assert done.stderr.count("\n") == 1


def refused(message, *arguments, **options):
    done = quire("quantize", *arguments, **options)
    assert done.returncode == 1 and message in done.stderr, done.stderr
    assert done.stderr.count("\n") == 1 and done.stdout == ""


def test_wrong_inputs_are_refused(model, tmp_path):
    out = tmp_path / "out"
    (tmp_path / "empty").mkdir()
    cut = tmp_path / "cut"
    shutil.copytree(model, cut)
    (cut / "model.safetensors").write_bytes((model / "model.safetensors").read_bytes()[:-1000])
    refused("not found", tmp_path / "missing", out, "--method", "nf4")
    refused("no config.json", tmp_path / "empty", out, "--method", "nf4")
    refused("model.safetensors", cut, out, "--method", "nf4")
    refused("is quantized for inputs that are scaled or rotated", HF / "modelopt-awq", out, "--method", "nf4")
    refused("is quantized in one tensor with other experts", HF / "gpt-oss-mxfp4", out, "--method", "nf4")
    refused("can quantize no matrix", model, out, "--method", "rtn-int4", "--group-size", "8192")
    refused("has no linears that nf4 can quantize", GOLDEN / "models/gpt2", out, "--method", "nf4")
    assert not out.exists()


def test_weights_that_are_not_finite_are_named_with_their_row(model, tmp_path):
    bad = tmp_path / "bad"
    shutil.copytree(model, bad)
    data = bytearray((model / "model.safetensors").read_bytes())
    (length,) = struct.unpack_from("<Q", data)
    tensor = json.loads(data[8 : 8 + length])["model.layers.1.mlp.down_proj.weight"]
    struct.pack_into("<H", data, 8 + length + tensor["data_offsets"][0] + 2 * (3 * tensor["shape"][1] + 5), 0x7F80)  # infinity
    (bad / "model.safetensors").write_bytes(data)
    refused("tensor model.layers.1.mlp.down_proj.weight, row 3 has the value inf that is not finite; the file is damaged", bad, tmp_path / "out", "--method", "rtn-int4")
    assert [p.name for p in tmp_path.iterdir()] == ["bad"]


def test_only_model_directories_are_replaced(model, tmp_path):
    out, other = tmp_path / "out", tmp_path / "other"
    other.mkdir()
    (other / "mine").write_text("mine")
    refused("exists; overwrite it with --force or choose another name", model, other, "--method", "fp8")
    refused("is no model's directory (it has no config.json), so --force does not replace it", model, other, "--method", "fp8", "--force")
    assert (other / "mine").read_text() == "mine"
    file = tmp_path / "file"
    file.write_text("mine")
    refused("exists and is no directory", model, file, "--method", "fp8", "--force")
    refused("is, or contains, the model that is read", model, model, "--method", "fp8", "--force")
    refused("is, or contains, the model that is read", model, model.parent, "--method", "fp8", "--force")
    refused("none/out cannot be written: No such file or directory", model, tmp_path / "none/out", "--method", "fp8")
    assert quire("quantize", model, out, "--method", "fp8").returncode == 0
    before = (out / "model.safetensors").read_bytes()
    refused("exists; overwrite it with --force", model, out, "--method", "nf4")
    assert (out / "model.safetensors").read_bytes() == before
    assert quire("quantize", model, out, "--method", "nf4", "--force").returncode == 0
    assert (out / "model.safetensors").read_bytes() != before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "other", "out"]


def test_a_full_disk_is_an_error_and_keeps_the_older_directory(model, tmp_path):
    def limit_files():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))

    out = tmp_path / "out"
    assert quire("quantize", model, out, "--method", "fp8").returncode == 0
    before = (out / "model.safetensors").read_bytes()
    refused("model.safetensors could not be written: File too large", model, out, "--method", "nf4", "--force", preexec_fn=limit_files)
    assert [p.name for p in tmp_path.iterdir()] == ["out"] and (out / "model.safetensors").read_bytes() == before


def test_ctrl_c_leaves_nothing(model, tmp_path):
    skip_without_binary()
    big = tmp_path / "big"
    big.mkdir()
    # A model large enough to be interrupted, its weights one hole of zeros.
    config = json.loads((model / "config.json").read_text())
    config |= {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 8, "num_attention_heads": 16, "num_key_value_heads": 16, "head_dim": 128, "vocab_size": 320, "tie_word_embeddings": True}
    (big / "config.json").write_text(json.dumps(config))
    tensors = {"model.embed_tokens.weight": [320, 2048], "model.norm.weight": [2048]}
    for i in range(8):
        of = f"model.layers.{i}."
        tensors |= {of + f"self_attn.{x}_proj.weight": [2048, 2048] for x in "qkvo"}
        tensors |= {of + "mlp.gate_proj.weight": [8192, 2048], of + "mlp.up_proj.weight": [8192, 2048], of + "mlp.down_proj.weight": [2048, 8192]}
        tensors |= {of + "input_layernorm.weight": [2048], of + "post_attention_layernorm.weight": [2048]}
    header, at = {}, 0
    for name, shape in tensors.items():
        size = 2
        for extent in shape:
            size *= extent
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    with open(big / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + at)
    out = tmp_path / "out"
    out.mkdir()
    expect_interrupt_leaves_nothing(out, "quantize", big, out / "model", "--method", "rtn-int4", "-t", "1")


def test_help_lists_every_method():
    text = re.sub(r"\s+", " ", quire("quantize", "--help").stdout)
    for method in [*METHODS, "gptq", "awq", "smoothquant"]:
        assert f" {method} (" in text, method


@pytest.mark.parametrize("method, most", [("gptq", 0.45), ("awq", 0.55), ("smoothquant", 0.02)])
def test_methods_that_look_at_inputs(model, tmp_path, method, most):
    text = GOLDEN.parents[2] / "docs/serving.md"
    out = tmp_path / "out"
    done = quire("quantize", model, out, "--method", method, "--calibrate", text, "--calibration-context", "64", "--calibration-chunks", "64")
    assert done.returncode == 0, done.stderr
    assert ("relative error of outputs" in done.stderr) == (method != "smoothquant")
    found = kl(out, model)
    assert 0 < found < most


def test_methods_that_do_not_look_at_inputs_refuse_a_text(model, tmp_path):
    done = quire("quantize", model, tmp_path / "out", "--method", "nf4", "--calibrate", GOLDEN / "README.md")
    assert done.returncode == 2 and "nf4 does not look at inputs; leave it out" in done.stderr
