"""-tp: several ranks compute, the answers stay (docs/scale.md)."""

import pytest

from conftest import quire, quire_json


@pytest.fixture(scope="module")
def model(tiny):
    return tiny("q4_k")


def answer(model, *flags):
    done = quire("run", "-m", model, "-p", "A prompt", "-n", "24", "--raw", "-s", "3", *flags)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_answer_is_that_of_one_rank(model):
    one = answer(model)
    assert one.strip()
    for flags in ["-tp", "2"], ["--tensor-parallel-size", "3", "-t", "2"], ["-tp", "4", "--speculative", "ngram"]:
        assert answer(model, *flags) == one, flags


def test_bench_says_what_ranks_exchange(model):
    report = quire_json("bench", "-m", model, "-p", "16", "-n", "4", "-r", "1", "-tp", "2")
    prefill, decode = report["results"]
    for result in prefill, decode:
        assert result["gathers_per_step"] > 0 and 0 < result["gather_share"] < 1 and result["gather_seconds_per_step"] > 0
    # The prompt has 16 rows in a step instead of one, but as many rows of logits.
    assert 1 < prefill["gathered_bytes_per_step"] / decode["gathered_bytes_per_step"] < 16
    one = quire_json("bench", "-m", model, "-p", "16", "-n", "4", "-r", "1")
    assert all("gathers_per_step" not in result for result in one["results"])
    text = quire("bench", "-m", model, "-p", "0", "-n", "4", "-r", "1", "-tp", "2").stdout
    assert "decode 4: 2 ranks; a step has" in text


def test_the_other_commands_that_read_text_agree(model, tmp_path):
    (text := tmp_path / "text").write_text("A quire is a set of folded sheets. " * 40)
    one, three = (quire_json("perplexity", "-m", model, "-f", text, "-c", "32", "--chunks", "4", *flags) for flags in ([], ["-tp", "3"]))
    assert one["perplexity"] == three["perplexity"] > 1


@pytest.mark.parametrize(
    "arguments, code, message",
    [
        (["run", "-p", "x", "-tp", "0"], 2, "--tensor-parallel-size must be between 1 and 64, not 0"),
        (["run", "-p", "x", "-tp", "65"], 2, "--tensor-parallel-size must be between 1 and 64, not 65"),
        (["run", "-p", "x", "-tp", "two"], 2, "--tensor-parallel-size must be a number, not 'two'"),
        (["run", "-p", "x", "-tp"], 2, "--tensor-parallel-size"),
        (["verify", "-tp", "2"], 2, "--tensor-parallel-size must be 1 to compare kernel sets"),
    ],
)
def test_what_cannot_be_done_is_refused(model, arguments, code, message):
    done = quire(arguments[0], "-m", model, *arguments[1:])
    assert (done.returncode, message in done.stderr) == (code, True), done.stderr
