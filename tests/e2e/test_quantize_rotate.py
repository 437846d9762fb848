"""quire quantize --rotate: files, flags and messages. tests/unit/quantize/rotation_test.cc compares logits of many families."""

import json
import shutil

import pytest

from conftest import GOLDEN, expect_interrupt_leaves_nothing, quire, quire_json

TEXT = GOLDEN.parents[2] / "docs/serving.md"
CALIBRATION = ["--calibrate", TEXT, "--calibration-context", "64", "--calibration-chunks", "32"]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Float directories with a tokenizer, one with an output matrix of its own and one without."""
    folder = tmp_path_factory.mktemp("models")
    for name in "llama", "llama_tied_rope3":
        shutil.copytree(GOLDEN / "models" / name, folder / name)
        for file in (GOLDEN / "converted").glob("tokenizer*.json"):
            shutil.copy(file, folder / name)
    return folder


def kl(model, base):
    return quire_json("compare", "-m", model, "-b", base, "-f", GOLDEN / "README.md", "-c", "64", "--chunks", "2", "--activations", "f32", "--kv-cache-dtype", "f32")["mean_kl"]["value"]


@pytest.mark.parametrize("name", ["llama", "llama_tied_rope3"])
def test_a_rotated_file_is_the_same_model(models, tmp_path, name):
    plain, rotated = tmp_path / "plain.gguf", tmp_path / "rotated.gguf"
    assert quire("quantize", models / name, plain, "--type", "F32").returncode == 0
    done = quire("quantize", models / name, rotated, "--type", "F32", "--rotate")
    assert done.returncode == 0, done.stderr
    # The rotated weights are rounded to the directory's bfloat16, which this random model magnifies; Q8_0 loses .002 to .01.
    assert kl(rotated, plain) < 0.002
    tensors = {t["name"] for t in quire_json("inspect", rotated, "--tensors")["tensors"]}
    assert "output.weight" in tensors
    assert sorted(p.name for p in tmp_path.iterdir()) == ["plain.gguf", "rotated.gguf"]
    assert quire_json("inspect", rotated)["metadata"]["general.name"] == name


def test_gguf_files_can_be_rotated(tmp_path):
    file = GOLDEN / "converted/llama_q8_0.gguf"
    done = quire("quantize", file, tmp_path / "out.gguf", "--type", "F16", "--rotate")
    assert done.returncode == 0, done.stderr
    assert "quantized already" in done.stderr
    assert kl(tmp_path / "out.gguf", file) < 1e-4
    assert quire("quantize", file, tmp_path / "out", "--method", "rtn-int8", "--rotate").returncode == 0
    assert kl(tmp_path / "out", file) < 0.01


@pytest.mark.parametrize("method, most", [("rtn-int8", 0.02), ("fp8", 0.2), ("nf4", 1.5), ("gptq", 1), ("awq", 1), ("smoothquant", 0.05)])
def test_methods_work_on_rotated_models(models, tmp_path, method, most):
    calibration = CALIBRATION if method in ("gptq", "awq", "smoothquant") else []
    done = quire("quantize", models / "llama_tied_rope3", tmp_path / "out", "--method", method, "--rotate", *calibration)
    assert done.returncode == 0, done.stderr
    assert 0 < kl(tmp_path / "out", models / "llama_tied_rope3") < most
    config = json.loads((tmp_path / "out/config.json").read_text())
    assert config["tie_word_embeddings"] is False
    groups = config["quantization_config"].get("transform_config", {}).get("config_groups", {})
    assert bool(groups) == (method in ("fp8", "smoothquant"))  # which round inputs
    assert ("matrices are rotated at run time" in done.stderr) == bool(groups)
    for group in groups.values():
        assert group["type"] == "hadamard" and [use["location"] for use in group["apply"]] == ["input", "weight_input"]
        assert all(module.endswith("mlp.down_proj") for module in group["apply"][0]["targets"])
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_the_online_part_can_be_left_out(models, tmp_path):
    done = quire("quantize", models / "llama", tmp_path / "out", "--method", "fp8", "--rotate", "--no-online-rotation")
    assert done.returncode == 0 and "run time" not in done.stderr, done.stderr
    assert "transform_config" not in json.loads((tmp_path / "out/config.json").read_text())["quantization_config"]
    assert 0 < kl(tmp_path / "out", models / "llama") < 0.2


def test_bits_do_not_depend_on_threads(models, tmp_path):
    for threads in "1", "3":
        assert quire("quantize", models / "llama", tmp_path / threads, "--type", "Q4_0", "--rotate", "-t", threads).returncode == 0
    assert (tmp_path / "1").read_bytes() == (tmp_path / "3").read_bytes()


@pytest.mark.parametrize("name, why", [
    ("gemma2", "--rotate does not work for this gemma2 model: norms after the branches weigh single dimensions (layer 0)"),
    ("gpt2", "--rotate does not work for this gpt2 model: positions or segments are added to the embeddings"),
    ("falcon", "--rotate does not work for this falcon model: layer norms subtract the mean, which rotations do not keep (layer 0)"),
    ("gpt_oss", "cannot be rotated: it holds several matrices, or lies in an unusual way"),
])
def test_other_models_are_refused(tmp_path, name, why):
    for flags in ["--method", "nf4"], ["--type", "Q4_0"], ["--type", "Q4_0", "--resume"]:
        done = quire("quantize", GOLDEN / "models" / name, tmp_path / "out", *flags, "--rotate")
        assert done.returncode == 1 and done.stderr.endswith(why + "\n") and done.stderr.count("\n") == 1, done.stderr
    assert list(tmp_path.iterdir()) == []


def test_bad_command_lines_exit_with_2(models, tmp_path):
    done = quire("quantize", models / "llama", tmp_path / "out", "--type", "Q4_0", "--rotate", "--dry-run")
    assert done.returncode == 2 and "--rotate" in done.stderr
    for flags in ["--type", "Q4_0", "--rotate"], ["--method", "fp8"]:
        done = quire("quantize", models / "llama", tmp_path / "out", *flags, "--no-online-rotation")
        assert done.returncode == 2 and "--no-online-rotation" in done.stderr, done.stderr
    done = quire("quantize", models / "llama", tmp_path / "out", "--rotate")
    assert done.returncode == 2 and "--method is required" in done.stderr


def test_ctrl_c_leaves_nothing(tiny, tmp_path):
    model = tmp_path / "model.gguf"
    assert quire("synth", "--shape", "smollm2-135m", "--type", "q8_0", "-o", model).returncode == 0
    out = tmp_path / "out"
    out.mkdir()
    expect_interrupt_leaves_nothing(out, "quantize", model, out / "model", "--method", "rtn-int4", "--rotate", "-t", "1")
