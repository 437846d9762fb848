"""-pp: several stages compute, the answers stay (docs/scale.md)."""

import pytest

from conftest import GOLDEN, Server, quire, quire_json
from test_ranks import answer, model  # noqa: F401 (a fixture)
from test_server import post


def test_the_answer_is_that_of_one_stage(model):
    one = answer(model)
    assert one.strip()
    for flags in ["-pp", "2"], ["--pipeline-parallel-size", "2", "--micro-batch-rows", "1", "-t", "3"], ["-pp", "2", "--speculative", "ngram"]:
        assert answer(model, *flags) == one, flags


def test_the_memory_table_shows_the_stages(model):
    plan = quire_json("run", "-m", model, "-p", "x", "-n", "1", "-pp", "2")["memory"]
    first, last = plan["stages"]
    assert (first["first_layer"], first["layers"]) == (0, last["first_layer"])
    assert first["sent_bytes_per_token"] > 0 and last["sent_bytes_per_token"] == 0
    assert all(stage["weight_bytes"] > 0 and stage["cache_bytes"] > 0 for stage in (first, last))


def test_the_other_commands_that_read_text_agree(model, tmp_path):
    (text := tmp_path / "text").write_text("A quire is a set of folded sheets. " * 40)
    one, two = (quire_json("perplexity", "-m", model, "-f", text, "-c", "32", "--chunks", "4", *flags) for flags in ([], ["-pp", "2"]))
    assert one["perplexity"] == two["perplexity"] > 1
    assert quire_json("bench", "-m", model, "-p", "16", "-n", "4", "-r", "1", "-pp", "2")["results"]


def test_adapters_and_control_vectors_change_the_same():
    flags = ["--lora", f"one={GOLDEN / 'adapters/llama'}", "--control-vector-scaled", f"{GOLDEN / 'control-vectors/first.gguf'}:4"]
    body = {"prompt": list(range(3, 30)), "max_tokens": 12, "ignore_eos": True, "temperature": 0, "return_token_ids": True}

    def answers(*more):
        server = Server(*flags, *more, model=GOLDEN / "models/llama", name="tiny")
        tokens = [post(server, "/v1/completions", body | {"model": name})[1]["choices"][0]["token_ids"] for name in ("tiny", "one")]
        assert server.stop()[0] == 0
        return tokens

    one = answers()
    assert one[0] != one[1]
    assert answers("-pp", "2", "--micro-batch-rows", "4") == one


@pytest.mark.parametrize(
    "arguments, code, message",
    [
        (["run", "-p", "x", "-pp", "0"], 2, "--pipeline-parallel-size must be between 1 and 64, not 0"),
        (["run", "-p", "x", "-pp", "64"], 1, "--pipeline-parallel-size is 64, but the model has"),
        (["run", "-p", "x", "-pp", "2", "-tp", "2"], 1, "cannot be combined with --tensor-parallel-size 2"),
        (["run", "-p", "x", "-pp", "2", "--speculative", "early-exit"], 1, "cannot be combined with --speculative early-exit"),
        (["run", "-p", "x", "-pp", "2", "--micro-batch-rows", "0"], 2, "--micro-batch-rows must be between 1 and"),
        (["bench", "-pp", "2", "--profile"], 1, "--profile shows the operations of one stage"),
        (["verify", "-pp", "2"], 2, "--pipeline-parallel-size"),
    ],
)
def test_what_cannot_be_done_is_refused(model, arguments, code, message):
    done = quire(arguments[0], "-m", model, *arguments[1:])
    assert (done.returncode, message in done.stderr) == (code, True), done.stderr
