"""Memory is planned from a model's headers: what does not fit is refused before weights are read, and all commands print one plan."""

import json
import re
import struct

import pytest

from conftest import GOLDEN, MODEL, Server, needs_model, quire, quire_json


def sparse_model(folder, hidden, layers, byte=None):
    """A Llama directory of that shape. Its weights take no room on the disk, or all of their bytes have one value."""
    vocabulary, heads, ffn = 1024, hidden // 64, 4 * hidden
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": hidden, "intermediate_size": ffn,
              "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": heads, "vocab_size": vocabulary,
              "max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": True}
    shapes = {"model.embed_tokens.weight": [vocabulary, hidden], "model.norm.weight": [hidden]}
    for i in range(layers):
        layer = f"model.layers.{i}."
        shapes |= {f"{layer}self_attn.{name}_proj.weight": [hidden, hidden] for name in "qkvo"}
        shapes |= {f"{layer}mlp.{name}_proj.weight": [ffn, hidden] for name in ("gate", "up")}
        shapes |= {layer + "mlp.down_proj.weight": [hidden, ffn]}
        shapes |= {f"{layer}{name}_layernorm.weight": [hidden] for name in ("input", "post_attention")}
    header, end = {}, 0
    for name, shape in shapes.items():
        size = 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        if byte is None:
            file.truncate(8 + len(text) + end)
        else:
            file.write(bytes([byte]) * end)
    return folder


@pytest.mark.parametrize("command", [["serve", "--port", "0"], ["run", "-p", "x"], ["bench", "-p", "4", "-n", "0"]])
def test_a_model_that_is_too_big_is_refused_in_one_line(tmp_path, command):
    model = sparse_model(tmp_path / "big", 4096, 32)  # 16 GiB
    done = quire(*command, "-m", model, "--memory", "1GiB", timeout=30)
    assert done.returncode == 1 and done.stdout == ""
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert re.search(rf"quire: 1024 MiB of memory are available, but {model} needs at least \d{{5}} MiB "
                     r"\(weights \d{5}, activations \d+, other \d+\): choose a smaller model", done.stderr), done.stderr


def test_weights_that_would_fit_alone_are_not_read_first(tmp_path):
    model = sparse_model(tmp_path / "damaged", 512, 4, byte=0xFF)  # no weight is a number
    for command in ["serve", "--port", "0"], ["run", "-p", "x"]:
        done = quire(*command, "-m", model, "--memory", "70MiB", timeout=30)
        assert done.returncode == 1 and "needs at least" in done.stderr, done.stderr
    assert "the file is damaged" in quire("bench", "-m", model, "-p", "4", "-n", "0").stderr


def test_inspect_says_that_a_model_is_too_big(tmp_path):
    model = sparse_model(tmp_path / "huge", 16384, 200)  # 1.2 TiB
    memory = quire_json("inspect", model)["memory"]
    assert memory["plan"] is None and "needs at least" in memory["too_little"]
    assert memory["weight_bytes"] > 2**40
    shown = quire("inspect", model).stdout
    assert "\nsupported:        yes, but" in shown and "needs at least" in shown


@needs_model
def test_serve_run_and_inspect_print_one_plan():
    def numbers(text):
        return re.findall(r"^.*\b(weights|activations) +(\d+) MiB", text, re.M)

    code, log = Server().stop()
    assert code == 0, log
    inspected = quire("inspect", MODEL).stdout
    assert len(numbers(inspected)) == 2 and numbers(inspected) == numbers(log), log
    assert re.search(r"\n  total +\d+ MiB  of \d+ MiB available", inspected)
    plan = quire_json("inspect", MODEL)["memory"]["plan"]
    assert sum(row["bytes"] for row in plan["rows"]) == plan["bytes"] <= plan["budget_bytes"]
    ran = quire_json("run", "-m", MODEL, "-p", "x", "-n", "1")["memory"]
    rows = {row["what"]: row["bytes"] for row in plan["rows"]}
    assert {row["what"] for row in ran["rows"]} == set(rows)
    assert [row["bytes"] for row in ran["rows"] if row["what"] == "weights"] == [rows["weights"]]


def test_the_plans_of_models_of_all_kinds_add_up():
    for name in ["llama", "gemma2", "phimoe", "deepseek_v3", "qwen3_next", "mamba2"]:
        memory = quire_json("inspect", GOLDEN / "models" / name)["memory"]
        plan = memory["plan"]
        assert sum(row["bytes"] for row in plan["rows"]) == plan["bytes"] <= plan["budget_bytes"]
        assert plan["rows"][0]["what"] == "weights" and plan["rows"][0]["bytes"] == memory["weight_bytes"]
