"""quire compare: what it prints and refuses. tests/unit/cli/distance_tally_test.cc checks the numbers."""

import re

import pytest

from conftest import GOLDEN, MODEL, needs_model, quire, quire_json

HF = GOLDEN / "formats/hf-models"
TEXT = GOLDEN / "README.md"
FAST = ["-f", TEXT, "-c", "64", "--chunks", "2"]


@pytest.fixture(scope="module")
def pair(tiny, tmp_path_factory):
    small = tmp_path_factory.mktemp("pair") / "q2.gguf"
    assert quire("quantize", tiny("f32"), small, "--type", "Q2_K").returncode == 0
    return small, tiny("f32")


def test_a_model_is_at_no_distance_from_itself(tiny):
    result = quire_json("compare", "-m", tiny("f32"), "-b", tiny("f32"), *FAST)
    assert result["mean_kl"] == {"value": 0, "error": 0} and result["max_kl"] == 0
    assert result["same_top"]["value"] == 1 and result["right_to_wrong"] == result["wrong_to_right"] == 0
    assert result["perplexity_change"] == {"value": 0, "error": 0}
    assert result["perplexity"] == result["base_perplexity"]
    assert result["tokens"] == 2 * 31 and result["chunks"] == 2  # of 64 tokens, the second half scores all but the last


def test_a_quantized_model_is_at_some_distance(pair):
    small, whole = pair
    result = quire_json("compare", "-m", small, "-b", whole, *FAST, "--activations", "f32")
    assert 0 < result["median_kl"] <= result["p90_kl"] <= result["p99_kl"] <= result["max_kl"]
    assert 0 < result["mean_kl"]["error"] < result["mean_kl"]["value"] < result["max_kl"]
    assert len(result["by_position"]) == 8
    assert sum(row["tokens"] for row in result["by_position"]) == result["tokens"]
    assert result["by_position"][0]["positions"] == [32, 34] and result["by_position"][-1]["positions"][1] == 62
    assert result["model"]["activations"] == result["base"]["activations"] == "f32"


def test_its_perplexity_is_that_of_the_perplexity_command(pair):
    small, whole = pair
    result = quire_json("compare", "-m", small, "-b", whole, *FAST)
    for model, field in (small, "perplexity"), (whole, "base_perplexity"):
        alone = quire_json("perplexity", "-m", model, *FAST)
        assert result[field]["value"] == pytest.approx(alone["perplexity"], rel=1e-12)
        assert result[field]["error"] == pytest.approx(alone["error"], rel=1e-6)


def test_two_settings_of_one_model(tiny):
    result = quire_json("compare", "-m", tiny("q4_0"), "--activations", "int8", "--base-activations", "f32", *FAST)
    assert result["mean_kl"]["value"] > 0
    assert result["model"]["activations"] == "int8" and result["base"]["activations"] == "f32"
    lost = []
    for dtype in ("int8", "fp8", "int4"):
        result = quire_json("compare", "-m", tiny("q4_0"), "--activations", "f32", "--kv-cache-dtype", dtype, "--base-kv-cache-dtype", "f32", *FAST)
        assert (result["model"]["kv_cache_dtype"], result["base"]["kv_cache_dtype"]) == (dtype, "f32")
        lost.append(result["mean_kl"]["value"])
    assert 0 < lost[0] < lost[1] < lost[2]


def test_the_text_report(pair):
    small, whole = pair
    done = quire("compare", "-m", small, "-b", whole, *FAST, "--from", "0")
    assert done.returncode == 0, done.stderr
    assert "126 tokens: positions 0 to 62 of 2 chunks" in done.stdout
    for pattern in r"KL divergence +mean [\d.]+ \+/- [\d.]+, median", r"same top token +[\d.]+ \+/- [\d.]+ %", r"flips +right to wrong", r"perplexity .*, change [+-][\d.]+ \+/- ", r"\n0-6 +14 ", r"\n55-62 +16 ":
        assert re.search(pattern, done.stdout), done.stdout


@needs_model
def test_the_real_model_in_two_settings():
    result = quire_json("compare", "-m", MODEL, "--activations", "int8", "--base-activations", "int8x2", "-f", TEXT, "--chunks", "1")
    assert 0.0001 < result["mean_kl"]["value"] < 0.05 and result["same_top"]["value"] > 0.9


@pytest.mark.parametrize("flags, message", [
    ([], "--model"), (["-m", "x"], "--file"),
    (["-m", "x", "-f", "y"], "--base, --base-activations or --base-kv-cache-dtype is required"),
    (["-m", "x", "-b", "y", "-f", "z", "-c", "2"], "--context"),
    (["-m", "x", "-b", "y", "-f", "z", "-c", "64", "--from", "63"], "--from must be at most 62"),
    (["-m", "x", "-b", "y", "-f", "z", "--from", "-2"], "--from"),
    (["-m", "x", "-b", "y", "-f", "z", "--chunks", "-5"], "--chunks"),
    (["-m", "x", "-b", "y", "-f", "z", "--chunks", "0"], "must be -1, for all, or at least 1, not 0"),
    (["-m", "x", "-b", "y", "-f", "z", "--chunks", "two"], "--chunks"),
    (["-m", "x", "-b", "y", "-f", "z", "-c", "1e3"], "--context"),
    (["-m", "x", "-b", "y", "-f", "z", "--from", "1.5"], "--from"),
    (["-m", "x", "-b", "y", "-f", "z", "--max-model-len", "512"], "--max-model-len"),
    (["-m", "x", "-b", "y", "-f", "z", "--activations", "int9"], "int9 is not supported"),
    (["-m", "x", "-f", "z", "--base-activations", "int3"], "int3 is not supported"),
    (["-m", "x", "-f", "z", "--base-kv-cache-dtype", "int3"], "int3 is not supported"),
])
def test_bad_command_lines_exit_with_2(flags, message):
    done = quire("compare", *flags)
    assert done.returncode == 2 and message in done.stderr, done.stderr


def test_what_cannot_be_compared_is_refused(tiny, tmp_path):
    def refuse(message, *arguments):
        done = quire("compare", *arguments)
        assert done.returncode == 1 and message in done.stderr and done.stderr.count("\n") == 1, done.stderr

    f32 = tiny("f32")
    (tmp_path / "short").write_text("too short")
    refuse("missing", "-m", f32, "-b", tmp_path / "missing", *FAST)
    refuse("missing", "-m", f32, "-b", f32, "-f", tmp_path / "missing")
    refuse("too few for one chunk of 64", "-m", f32, "-b", f32, "-f", tmp_path / "short", "-c", "64")
    (tmp_path / "empty").write_text("")
    (tmp_path / "cut.gguf").write_bytes(f32.read_bytes()[:3000])
    refuse("too few for one chunk", "-m", f32, "-b", f32, "-f", tmp_path / "empty")
    refuse("is not a regular file", "-m", f32, "-b", f32, "-f", tmp_path)
    refuse("not a GGUF file", "-m", f32, "-b", TEXT, *FAST)
    refuse("not a GGUF file", "-m", TEXT, "-b", f32, *FAST)
    refuse("no config.json", "-m", f32, "-b", tmp_path, *FAST)
    refuse("cut.gguf", "-m", tmp_path / "cut.gguf", "-b", f32, *FAST)
    refuse("trained for at most 512 tokens", "-m", f32, "-b", f32, "-f", TEXT, "-c", "100000")
    refuse("has no vocabulary", "-m", f32, "-b", HF / "tiny128-gptq", *FAST)


@needs_model
def test_models_of_other_vocabularies_are_refused(tiny):
    done = quire("compare", "-m", MODEL, "-b", tiny("f32"), *FAST)
    assert done.returncode == 1 and "only models with one vocabulary can be compared" in done.stderr, done.stderr
