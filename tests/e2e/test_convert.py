"""quire convert: files, flags and messages. tests/golden/engine/convert_test.cc compares the models."""

import json
import resource
import shutil
import signal

import pytest

from conftest import GOLDEN, quire, quire_json

LLAMA = GOLDEN / "models/llama"


def test_a_converted_file_runs_with_its_tokenizer_and_template(tmp_path):
    source, out = tmp_path / "Small Model", tmp_path / "out.gguf"
    shutil.copytree(LLAMA, source)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(GOLDEN / "converted" / name, source)
    done = quire("convert", source, out)
    assert done.returncode == 0, done.stderr
    assert done.stderr == f"wrote {out}: 30 tensors, mostly BF16, 0.3 MB\n"
    report = quire_json("inspect", out)
    assert report["runs"] == {"ok": True, "why_not": None}
    assert report["metadata"]["general.name"] == "Small Model"
    assert report["chat_template"]["bytes"] > 50
    text = "The thin man's hat: 123!\n"
    converted, original = (quire("tokenize", "-m", model, "-p", text) for model in (out, source))
    assert converted.returncode == 0 and converted.stdout == original.stdout
    answer = quire("run", "-m", out, "-p", "Hello", "-n", "4")
    assert answer.returncode == 0, answer.stderr


def test_existing_files_are_kept_without_force(tmp_path):
    out = tmp_path / "out.gguf"
    out.write_text("mine")
    done = quire("convert", LLAMA, out)
    assert (done.returncode, done.stderr) == (1, f"quire: {out} exists; overwrite it with --force or choose another name\n")
    assert out.read_text() == "mine"
    assert quire("convert", LLAMA, out, "--force").returncode == 0
    assert out.read_bytes()[:4] == b"GGUF"


def test_the_input_is_not_overwritten(tmp_path):
    model = tmp_path / "model"
    shutil.copytree(LLAMA, model)
    (tmp_path / "link").symlink_to(model / "model.safetensors")
    (tmp_path / "hard").hardlink_to(model / "config.json")
    before = {p.name: p.read_bytes() for p in model.iterdir()}
    for out in model / "model.safetensors", model / "config.json", tmp_path / "link", tmp_path / "hard", model / ".." / "model" / "config.json":
        done = quire("convert", model, out, "--force")
        assert done.returncode == 1 and f"{out} is a file of {model} itself" in done.stderr, done.stderr
    assert {p.name: p.read_bytes() for p in model.iterdir()} == before
    assert quire("convert", model, model / "out.gguf").returncode == 0
    done = quire("run", "-m", model / "out.gguf", "-p", "x", "--record", model / "out.gguf")
    assert done.returncode == 1 and "is a file of the model itself" in done.stderr, done.stderr
    assert (model / "out.gguf").read_bytes()[:4] == b"GGUF"


def test_a_failed_conversion_keeps_the_older_file(tmp_path):
    out = tmp_path / "out.gguf"
    out.write_text("mine")
    assert quire("convert", GOLDEN / "models/mamba2", out, "--force").returncode == 1
    assert out.read_text() == "mine"
    assert [p.name for p in tmp_path.iterdir()] == ["out.gguf"]


@pytest.mark.parametrize("arguments", [[], ["in"], ["in", "out", "--type", "q4_9"], ["in", "out", "--threads", "-1"]])
def test_bad_command_lines_exit_with_2(arguments):
    done = quire("convert", *arguments)
    assert done.returncode == 2 and done.stderr.startswith("quire: ")


def test_wrong_inputs_exit_with_1_and_one_line(tmp_path):
    (tmp_path / "empty").mkdir()
    for source, message in [(tmp_path / "missing", "missing"), (tmp_path / "empty", "no config.json"),
                            (GOLDEN / "models-gguf/qwen2.gguf", "is a GGUF file already"),
                            (GOLDEN / "models/mamba2", "architecture 'Mamba2ForCausalLM' cannot be written as GGUF yet")]:
        done = quire("convert", source, tmp_path / "out.gguf")
        assert done.returncode == 1 and message in done.stderr and done.stderr.count("\n") == 1, done.stderr
    assert not (tmp_path / "out.gguf").exists()


def test_an_output_that_cannot_be_written_is_named(tmp_path):
    done = quire("convert", LLAMA, tmp_path / "none/out.gguf")
    assert done.returncode == 1 and "none/out.gguf.tmp cannot be written: No such file or directory" in done.stderr


def limit_files():
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))


def test_a_full_disk_is_an_error_and_leaves_nothing(tmp_path):
    done = quire("convert", LLAMA, tmp_path / "out.gguf", preexec_fn=limit_files)
    assert done.returncode == 1 and "out.gguf could not be written: File too large" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_older_spelling_of_the_configuration_gives_the_same_file(tmp_path):
    source = tmp_path / "llama"
    shutil.copytree(LLAMA, source)
    shutil.copy(LLAMA / "config_v4.json", source / "config.json")
    assert quire("convert", source, tmp_path / "a.gguf").returncode == 0
    assert quire("convert", LLAMA, tmp_path / "b.gguf", "--name", "llama").returncode == 0
    assert (tmp_path / "a.gguf").read_bytes() == (tmp_path / "b.gguf").read_bytes()


def test_named_templates_are_kept(tmp_path):
    source = tmp_path / "llama"
    shutil.copytree(LLAMA, source)
    shutil.copy(GOLDEN / "converted/tokenizer.json", source)
    templates = [{"name": "default", "template": "A"}, {"name": "tool_use", "template": "B"}]
    (source / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|end|>", "chat_template": templates}))
    assert quire("convert", source, tmp_path / "out.gguf").returncode == 0
    metadata = quire_json("inspect", tmp_path / "out.gguf")["metadata"]
    assert metadata["tokenizer.chat_template"] == "A"
    assert metadata["tokenizer.chat_template.tool_use"] == "B"
